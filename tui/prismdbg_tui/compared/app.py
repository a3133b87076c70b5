"""The configurations of a sweep, one row each. Ends with the one that is to be opened, or with none."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path, PurePath
from typing import ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.widgets import DataTable, Static

from prismdbg.errors import PrismError
from prismdbg.sweep.result import Result, State, pareto
from prismdbg.sweep.stored import StoredSweep
from prismdbg_tui.compared import words
from prismdbg_tui.compared.help_sheet import SweepHelp
from prismdbg_tui.compared.keys import SWEEP_ACTIONS
from prismdbg_tui.drawing import figures
from prismdbg_tui.drawing.colors import color
from prismdbg_tui.drawing.themes import use_themes
from prismdbg_tui.overview.keys import bindings
from prismdbg_tui.refusals import of_reading, with_hint
from prismdbg_tui.screens.action_app import REASON_S, ActionApp
from prismdbg_tui.widgets.row_table import RowTable

_MOST_LINES = 6  # of a pane
_ORDERS: tuple[tuple[str, Callable[[Result], tuple[int | str, ...]]], ...] = (
    ("time", lambda each: (each.state is not State.DONE, each.middle_ns, each.name)),
    ("memory", lambda each: (each.peak_bytes is None, each.peak_bytes or 0, each.name)),
    ("name", lambda each: (each.name,)),
)


class SweepApp(ActionApp[str]):
    CSS_PATH: ClassVar[list[str | PurePath]] = [
        Path(__file__).parents[1] / "styles.tcss",
        Path(__file__).with_name("compared.tcss"),
    ]
    BINDINGS: ClassVar[list[BindingType]] = bindings(SWEEP_ACTIONS)

    def __init__(
        self,
        read: Callable[[], StoredSweep],
        *,
        keys: Mapping[str, str] | None = None,
        at: str = "",
        refused: str = "",
    ) -> None:
        """`read`: the folder again. at: the name of the configuration that has the cursor."""
        super().__init__(SWEEP_ACTIONS, keys, live=True, refused=refused)
        self._read, self._order, self.name_at = read, 0, at
        self.sweep = read()
        self._conclusion, self._detail = (Static("", id=name, classes="pane") for name in ("conclusion", "detail"))
        self.table = RowTable(id="configurations", cursor_type="row")

    def compose(self) -> ComposeResult:
        yield self.head
        yield self._conclusion
        yield self.table
        yield self._detail
        yield self.keybar

    def on_mount(self) -> None:
        use_themes(self)
        self._conclusion.border_title, self._detail.border_title = "Result", "Under the cursor"
        self.table.focus()
        self.repaint()

    # what is shown

    @property
    def rows(self) -> list[Result]:
        return sorted(self.sweep.results, key=_ORDERS[self._order][1])

    def repaint(self) -> None:
        self._show_heading()
        self._show(self._conclusion, words.conclusion(self.sweep))
        self._fill()
        self.keybar.paint()

    def _show_heading(self) -> None:
        name = figures.clean(self.sweep.path.name or str(self.sweep.path))
        heading = words.heading(self.sweep, f"sorted by {_ORDERS[self._order][0]}" if self._order else "")
        beside = range(len(heading) - 2, 0, -1) if self._order else ()  # the order that somebody chose stays
        self.show_head("sweep", "warning", name, heading, dropped_first=beside)

    def _show(self, pane: Static, text: Text) -> None:
        """As high as its text, with its frame. `…` is where there is no room for the rest."""
        width = max(self.size.width - 4, 1)
        lines = text.wrap(self.console, width)
        room = min(len(lines), _MOST_LINES, max(self.size.height // 4, 2))
        if room < len(lines):
            last = lines[room - 1]
            last.rstrip()
            last.truncate(width - 2)
            text = Text("\n").join([*lines[: room - 1], last.append(" …")])
        pane.styles.height = room + 2
        pane.update(text)

    def _fill(self) -> None:
        best = {each.name for each in pareto(self.sweep.results)}
        bad, cap_bytes = color(self, "error"), self.sweep.cap_bytes
        rows = self.rows
        texts = [words.cells(each, cap_bytes, is_best=each.name in best, bad=bad) for each in rows]
        titles = words.shown_titles(texts, self.size.width - 1)
        self.table.clear(columns=True)
        for title, width in titles:
            self.table.add_column(words.label(title), width=width, key=title)
        for each, cells in zip(rows, texts, strict=True):
            self.table.add_row(*cells[: len(titles)], key=each.name)
        place = next((at for at, each in enumerate(rows) if each.name == self.name_at), 0)
        self.table.move_cursor(row=place, animate=False)

    # what is done

    def on_data_table_row_highlighted(self, message: DataTable.RowHighlighted) -> None:
        if message.row_key.value is not None and self.table.is_valid_row_index(message.cursor_row):
            self.name_at = message.row_key.value
            self._show(self._detail, words.detail(self._chosen()))

    def on_data_table_row_selected(self, message: DataTable.RowSelected) -> None:
        message.stop()
        self.action_act("open")

    def _chosen(self) -> Result:
        return next(each for each in self.sweep.results if each.name == self.name_at)

    def _do_open(self) -> None:
        if not self.sweep.results:
            return
        chosen = self._chosen()
        if chosen.state is not State.DONE:
            self.refuse(f"{chosen.name} has no complete run: {chosen.state}")
        elif self.is_web:
            cluster = f" --cluster {self.sweep.cluster}" if self.sweep.cluster is not None else ""
            self.refuse(f"run `prismdbg open --web {self.sweep.run(chosen.name)}{cluster}`")
        else:
            self.exit(chosen.name)

    def _do_next_order(self) -> None:
        self._order = (self._order + 1) % len(_ORDERS)
        self._show_heading()
        self._fill()

    def _do_again(self) -> None:
        try:
            self.sweep = self._read()
        except (PrismError, OSError) as error:
            self.refuse(f"the sweep cannot be read again: {with_hint(of_reading(error, 'sweep'))}", REASON_S)
            return
        self.repaint()

    def _do_help(self) -> None:
        self.push_screen(SweepHelp(self.keys_shown))
