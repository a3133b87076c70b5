"""Every action with its key, beside it every command of the console, and why some of them cannot be had here."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from rich.columns import Columns
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Horizontal, VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Static

from prismdbg.session.line import VERBS
from prismdbg_tui.drawing.colors import color
from prismdbg_tui.session import pattern
from prismdbg_tui.session.actions import ACTIONS, Action, Section, unavailable
from prismdbg_tui.timeline.lanes_drawing import END, FEW_STOPS, START, WAITING

_SIGNS = (
    ("◆ ▶", "where the rank is: in the timeline, in the table; ◆ also marks it among the ranks"),
    ("▲", "the cursor"),
    (f"{START} {END}", "start and end moment of the capsule"),
    ("●", f"a breakpoint, or where one will be hit; • where there are more than {FEW_STOPS}"),
    ("✕ ·", "the first NaN or infinity that the rank sent; later ones"),
    ("◇", "a checkpoint of the rank"),
    ("⚑", "a note or a bookmark"),
    (WAITING, "the rank waits for others"),
    ("= ~ ≠", "identical to the recording, synthesized, diverged"),
    ("″", "as in the row above"),
    ("◉", "a watch expression"),
)
_MOST_KEYS, _MOST_COMMAND = 11, 21  # cells
_MOST_NAME = 16  # cells of a column's name; a longer one has two lines
TWO_COLUMNS = 100  # cells of the terminal; with fewer the commands are below the keys


class Help(ModalScreen[None]):
    BINDINGS = [Binding("escape,q,question_mark,f1", "dismiss", "close")]

    def __init__(self, keys: Mapping[str, str], *, live: bool, actions: Sequence[Action] = ACTIONS) -> None:
        super().__init__()
        self._actions = actions
        self._keys = dict(keys)
        self._live = live
        self._left, self._right = Static(id="help-keys"), Static(id="help-commands")

    def compose(self) -> ComposeResult:
        with VerticalScroll(id="sheet") as sheet:
            sheet.border_title = "Help"
            palette = " · ctrl+p: every action by name" if self.app.ENABLE_COMMAND_PALETTE else ""
            sheet.border_subtitle = f"esc closes{palette}"
            with Horizontal(id="help-columns"):
                yield self._left
                yield self._right
            yield Static(self._below(), id="help-below")

    def on_mount(self) -> None:
        self.query_one("#sheet").focus()
        self._left.update(self.of_keys())
        self._right.update(self._beside())
        self.on_resize()

    def on_resize(self) -> None:
        """In one column the sheet fills the screen."""
        self.set_class(self.app.size.width < TWO_COLUMNS, "-one")

    def of_keys(self) -> Table:
        accent, sheet = color(self.app, "accent"), _columns([self._keys[a.name] for a in self._actions], _MOST_KEYS)
        for section in dict.fromkeys(action.section for action in self._actions):
            sheet.add_row("", Text(section, f"bold {accent}"))
            for action in (a for a in self._actions if a.section is section):
                reason = unavailable(action, live=self._live)
                look = "dim" if reason else ""
                sheet.add_row(Text(self._keys[action.name], look or "bold"), Text(action.title, look))
            if section is Section.RUN and not self._live:
                sheet.add_row("", Text("dim: not available in a read-only view of the recording", "dim italic"))
            sheet.add_row("", "")
        return sheet

    def _beside(self) -> Table:
        """The other column: the commands of the console."""
        named = {
            f"{verb} ({usage.short})" if usage.short else str(verb): usage.meaning for verb, usage in VERBS.items()
        }
        accent, sheet = color(self.app, "accent"), _columns(named, _MOST_COMMAND)
        sheet.add_row("", Text("Commands of the console", f"bold {accent}"))
        for name, meaning in named.items():
            sheet.add_row(Text(name, "bold"), Text(meaning))
        sheet.add_row("", "")
        sheet.add_row("", Text("Signs", f"bold {accent}"))
        for sign, meaning in _SIGNS:
            sheet.add_row(Text(sign, "bold"), Text(meaning))
        sheet.add_row("", "")
        sheet.add_row("", Text("Search and filter", f"bold {accent}"))
        for line in (pattern.__doc__ or "").split("\n\n", 1)[1].strip("\n").splitlines():
            sheet.add_row("", line)
        sheet.add_row("", "")
        return sheet

    def _below(self) -> RenderableType:
        """Of all the width."""
        return self._names('To change keys: ~/.config/prismdbg/keys.toml, lines like  next = "f10"')

    def _names(self, where: str) -> RenderableType:
        """Of actions, as `keys.toml` takes them, each behind its keys, which say what it is."""
        named = (Text.assemble((self._keys[each.name], "bold"), f" {each.name}") for each in self._actions)
        return Group(Text(f"{where}. Names of actions:", "dim"), Columns(named, equal=True, column_first=True))


class HelpOfTable(Help):
    """Beside the keys: what the columns of a screen without a console mean, and remarks below both. table: its keys'
    table in `keys.toml`; empty where they cannot be changed."""

    def __init__(
        self,
        keys: Mapping[str, str],
        actions: Sequence[Action],
        *,
        live: bool,
        title: str,
        meanings: Mapping[str, str],
        remarks: Sequence[str] = (),
        table: str,
    ) -> None:
        super().__init__(keys, live=live, actions=actions)
        self._title, self.meanings, self._remarks, self._table = title, meanings, remarks, table

    def _beside(self) -> Table:
        sheet = _columns(self.meanings, _MOST_NAME)
        sheet.add_row("", Text(self._title, f"bold {color(self.app, 'accent')}"))
        for name, meaning in self.meanings.items():
            sheet.add_row(Text(name, "bold"), Text(meaning))
        sheet.add_row("", "")
        return sheet

    def _below(self) -> RenderableType:
        remarks: list[RenderableType] = [Text(f"{remark}\n") for remark in self._remarks]
        if self._table:
            remarks.append(self._names(f"To change keys: ~/.config/prismdbg/keys.toml, below a line [{self._table}]"))
        return Group(*remarks)


def _columns(explained: Iterable[str], most: int) -> Table:
    """No wider for what is explained than that needs, so that lines of text need not wrap; at most `most` cells."""
    table = Table.grid(padding=(0, 1, 0, 0), expand=True)
    table.add_column(width=min(max(map(len, explained)) + 1, most))
    table.add_column(ratio=1)
    return table
