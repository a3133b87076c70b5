"""What the screens of a simulated job, a recorded job and a sweep have in common."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import TypeVar

from rich.cells import cell_len
from rich.text import Text
from textual.app import App
from textual.widgets import Static

from prismdbg_tui.drawing.colors import color
from prismdbg_tui.screens.pictured_app import PicturedApp
from prismdbg_tui.session import keymap
from prismdbg_tui.session.actions import Action, unavailable
from prismdbg_tui.session.palette import Actions
from prismdbg_tui.widgets.key_bar import KeyBar

Returned = TypeVar("Returned")
REASON_S = 12.0  # a reason and what to do are shown


class ActionApp(PicturedApp[Returned]):
    """`actions`: the table of its keys; a method `_do_NAME` carries out the action NAME. keys: the user's own. refused:
    why what was chosen here before could not be opened. The application yields `head` first and `keybar` last."""

    TITLE = "prismdbg"
    COMMANDS = App.COMMANDS | {Actions}

    def __init__(
        self, actions: Sequence[Action], keys: Mapping[str, str] | None, *, live: bool, refused: str = ""
    ) -> None:
        super().__init__()
        self._refused, self._live = refused, live
        self.shown_actions = actions
        self.keys_shown = keymap.in_force(keys or {}, actions)
        self.set_keymap(dict(keys or {}))
        self.head = Static("", classes="head")
        self.keybar = KeyBar(self.keys_shown, live=live, actions=actions)

    @abstractmethod
    def repaint(self) -> None:
        """Draws all of it anew: its size or its theme is another one."""

    def show_head(
        self, kind: str, tone: str, name: str, heading: Sequence[str], dropped_first: Sequence[int] = ()
    ) -> None:
        """kind: what the job is, in the theme's colour `tone`. Where the parts of `heading` do not fit, those of
        `dropped_first` are left out first, then the last ones."""
        head = Text(no_wrap=True, overflow="ellipsis")
        head.append(" ◣ prismdbg ", f"bold {color(self, 'accent')}")
        head.append(f" {kind} ", f"bold reverse {color(self, tone)}")
        head.append(f"  {name}", "bold")
        left = dict(enumerate(f" · {part}" for part in heading))
        for number in (*dropped_first, *reversed(range(len(heading)))):
            if head.cell_len + cell_len("".join(left.values())) <= self.size.width:
                break
            left.pop(number, None)
        head.append("".join(left.values()), "dim")
        self.head.update(head, layout=False)

    def watch_theme(self, _name: str) -> None:
        if self.is_mounted(self.head):
            self.call_after_refresh(self.repaint)

    def on_resize(self) -> None:
        self.call_after_refresh(self.repaint)

    def on_key_bar_pressed(self, message: KeyBar.Pressed) -> None:
        self.action_act(message.action_name)

    def unavailable(self, action: Action) -> str:
        return unavailable(action, live=self._live)

    def action_act(self, name: str) -> None:
        self.act(name)

    def act(self, name: str) -> None:
        getattr(self, f"_do_{name}")()

    def action_help_quit(self) -> None:
        """Ctrl+C where nothing is selected."""
        self.notify(f"{self.keys_shown['leave']} quits", timeout=4)

    def on_ready(self) -> None:
        self.filled()
        if self._refused:
            self.refuse(self._refused, REASON_S)

    def _do_theme(self) -> None:
        names = sorted(self.available_themes)
        self.theme = names[(names.index(self.theme) + 1) % len(names)]

    def _do_leave(self) -> None:
        self.exit(None)
