"""Every action with its key, and why some of them cannot be had here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Static

from prismdbg_tui.drawing.colors import color
from prismdbg_tui.session import pattern
from prismdbg_tui.session.actions import ACTIONS, Action, Section, unavailable


class Help(ModalScreen[None]):
    BINDINGS = [Binding("escape,q,question_mark,f1", "dismiss", "close")]

    def __init__(self, keys: Mapping[str, str], *, live: bool, actions: Sequence[Action] = ACTIONS) -> None:
        super().__init__()
        self._actions = actions
        self._keys = dict(keys)
        self._live = live

    def compose(self) -> ComposeResult:
        with VerticalScroll(id="sheet") as sheet:
            sheet.border_title = "Keys"
            sheet.border_subtitle = "esc closes · ctrl+p: every action by name"
            yield Static(self._text())

    def on_mount(self) -> None:
        self.query_one("#sheet").focus()

    def _text(self) -> Text:
        accent = color(self.app, "accent")
        text = Text()
        for section in dict.fromkeys(action.section for action in self._actions):
            text.append(f"{section}\n", f"bold {accent}")
            for action in (a for a in self._actions if a.section is section):
                reason = unavailable(action, live=self._live)
                text.append(f"  {self._keys[action.name]:<14}", "dim" if reason else "bold")
                text.append(f"{action.title}\n", "dim" if reason else "")
            if section is Section.RUN and not self._live:
                text.append("  dim: not available in a read-only view of the recording\n", "dim italic")
            text.append("\n")
        self._end(text, accent)
        return text

    def _end(self, text: Text, accent: str) -> None:
        text.append("Search and filter\n", f"bold {accent}")
        text.append((pattern.__doc__ or "").split("\n\n", 1)[1].strip("\n") + "\n")
        text.append('\nTo change keys: ~/.config/prismdbg/keys.toml, lines like  next = "f10"\n', "dim")
        text.append("  actions: " + " ".join(a.name for a in ACTIONS), "dim")
