"""The table of collectives: only the lines that are seen are ever made, so a million of them cost what forty do."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.binding import Binding
from textual.content import Content
from textual.geometry import Size
from textual.scroll_view import ScrollView
from textual.strip import Strip

from prismdbg_tui.drawing import figures
from prismdbg_tui.drawing.colors import color, readable
from prismdbg_tui.drawing.table_columns import Column, columns_for, fitted
from prismdbg_tui.session.messages import CursorMoved
from prismdbg_tui.session.verdicts import Verdicts
from prismdbg_tui.timeline.op_families import FAMILIES, NONFINITE
from prismdbg_tui.timeline.recording import Recording

Ints = NDArray[np.int64]
_DITTO = {"group": "″", "source": "″", "verdict": "″"}


class Collectives(ScrollView, can_focus=True, inherit_bindings=False):
    """Shows rows, all of a recording or those that fit a filter; the cursor may stand on a row that is filtered out."""

    BORDER_TITLE = "Collectives"
    BINDINGS = [
        Binding("up", "move(-1)", show=False),
        Binding("down", "move(1)", show=False),
        Binding("pageup", "page(-1)", show=False),
        Binding("pagedown", "page(1)", show=False),
    ]

    def __init__(self) -> None:
        super().__init__(id="collectives", classes="pane")
        self._recording: Recording | None = None
        self._rows: Ints | None = None  # None: all of them
        self._hits: Ints = np.zeros(0, dtype=np.int64)
        self._cursor = 0
        self._moves = 0  # by keys and clicks here
        self._top = 0.0  # as it was scrolled, by whomever, but not for want of room
        self._laid_out = Size(0, 0)
        self.verdicts = Verdicts()
        self._stops: frozenset[int] = frozenset()
        self._noted: frozenset[int] = frozenset()
        self._pattern = ""

    def show(self, recording: Recording) -> None:
        self._recording = recording
        self._rows = None
        self._resize()

    def keep(self, rows: Ints | None, pattern: str) -> None:
        """Only these rows; None for all."""
        self._rows, self._pattern = rows, pattern
        self._resize()
        self._show_cursor()

    def mark(self, hits: Ints) -> None:
        self._hits = hits
        self._tell()

    def place(self, cursor: int, move: int = 0) -> None:
        """`move`: the number of the move of this pane that has come round. Where there are later ones it is over: set
        back, the next key would begin from there."""
        if move and move < self._moves:
            return
        self._cursor = cursor
        self._show_cursor()
        self._tell()

    def judge(
        self, verdicts: Verdicts, stops: frozenset[int] = frozenset(), noted: frozenset[int] = frozenset()
    ) -> None:
        """`stops`: rows that the session's stops are about. noted: rows with a note or a bookmark."""
        self.verdicts, self._stops, self._noted = verdicts, stops, noted
        self.refresh()

    @property
    def count(self) -> int:
        if self._recording is None:
            return 0
        return len(self._recording) if self._rows is None else len(self._rows)

    def row(self, line: int) -> int:
        return line if self._rows is None else int(self._rows[line])

    def line(self, row: int) -> int:
        """The line of `row`, or of the first one after it."""
        return row if self._rows is None else int(np.searchsorted(self._rows, row))

    def action_move(self, by: int) -> None:
        if self.count:
            at = self.line(self._cursor)
            standing = at < self.count and self.row(at) == self._cursor
            target = at + by if standing or by < 0 else at + by - 1
            self.go_to_line(target)

    def action_page(self, direction: int) -> None:
        self.go_to_line(self.line(self._cursor) + direction * max(self.size.height - 2, 1))

    def go_to_line(self, line: int) -> None:
        """The next key may be there before the message has come round: it goes on from here."""
        if self.count:
            self._cursor = self.row(min(max(line, 0), self.count - 1))
            self._moves += 1
            self.post_message(CursorMoved(self._cursor, self._moves))

    def _resize(self) -> None:
        self.virtual_size = Size(0, self.count + 1)
        self.call_after_refresh(self._place_bar)
        self._tell()

    def _place_bar(self) -> None:
        """A scrollbar that was not there yet does not know how far it was scrolled."""
        self.vertical_scrollbar.position = self.scroll_y

    def _show_cursor(self) -> None:
        line, room = self.line(self._cursor), max(self.size.height - 1, 1)
        top = self.scroll_offset.y
        if not top <= line < top + room:
            target = line - room // 2 if abs(line - top) > 2 * room else (line if line < top else line - room + 1)
            self.scroll_to(y=max(target, 0), animate=False, force=True, immediate=True)
        self.refresh()

    def _tell(self) -> None:
        shown = figures.plural(self.count, "call")
        if self._rows is not None and self._recording is not None:
            every = figures.plural(len(self._recording), "call")
            shown = f"{figures.count(self.count)} of {every}: {figures.cut(self._pattern, 30)}"
        if len(self._hits):
            shown += f" · {self._match()}"
        self.border_subtitle = Content(shown)
        self.refresh()

    def _match(self) -> str:
        every = figures.count(len(self._hits))
        at = int(np.searchsorted(self._hits, self._cursor, side="right"))
        return f"match {figures.count(at)} of {every}" if self._is_hit(self._cursor) else f"matches: {every}"

    def on_resize(self) -> None:
        """As it was before there was less room, as far as the cursor is seen."""
        top = self._top
        self.scroll_to(y=top, animate=False, force=True, immediate=True)
        self._show_cursor()
        self._top, self._laid_out = top, self.size

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        super().watch_scroll_y(old_value, new_value)
        if self.size == self._laid_out:
            self._top = new_value

    def on_click(self, event: events.Click) -> None:
        y = event.get_content_offset_capture(self).y
        line = self.scroll_offset.y + y - 1
        if y >= 1 and 0 <= line < self.count:
            self.go_to_line(line)

    def columns(self, width: int) -> list[Column]:
        return columns_for(width)

    def render_line(self, y: int) -> Strip:
        width, base = self.size.width, self.rich_style
        columns = self.columns(width)
        if y == 0:
            text = " " + " ".join(fitted(column.title, column) for column in columns)
            return Strip([Segment(text, base + Style(bold=True, dim=True))]).adjust_cell_length(width, base)
        line = self.scroll_offset.y + y - 1
        if self._recording is None or line >= self.count:
            return Strip.blank(width, base)
        above = self.row(line - 1) if y > 1 else None
        below = self.row(line + 1) if line + 1 < self.count else None
        return self._line(self.row(line), above, below, columns, width, base)

    def _line(
        self, row: int, above: int | None, below: int | None, columns: list[Column], width: int, base: Style
    ) -> Strip:
        """`above` and `below`: the rows of the lines around it, None at the edges of what is seen."""
        assert self._recording is not None
        dim = not self._recording.first <= row < self._recording.beyond
        if below is not None and self._recording.columns.step[below] != self._recording.columns.step[row]:
            base = base + Style(underline=True)  # a rule below each step, which takes no line
        if row == self._cursor:
            ground = color(self.app, "primary" if self.has_focus else "surface-lighten-2")
            base = base + Style(bgcolor=ground, color=readable(ground), bold=True)
        segments = [self._pointer(row, base)]
        for column in columns:
            text, own = self._cell(column.name, row)
            if column.name in _DITTO and text and row != self._cursor and above is not None:
                text, own = self._once(column.name, text, own, above)
            if column.name == "moment" and self._is_hit(row):
                own = color(self.app, "accent")
            look = base + Style(dim=True) if dim and row != self._cursor else base
            if own and not (row == self._cursor and self.has_focus):
                look = look + Style(color=own)
            segments += [Segment(fitted(text, column), look), Segment(" ", base)]
        return Strip(segments).adjust_cell_length(width, base)

    def _once(self, name: str, text: str, own: str, above: int) -> tuple[str, str]:
        """What the line above says, too, is not said again."""
        return (_DITTO[name], own) if self._cell(name, above)[0] == text else (text, own)

    def _pointer(self, row: int, base: Style) -> Segment:
        """Where the rank stands, else a stop, else a note."""
        if self.verdicts.pointer(row) == " " and row in self._stops:
            return Segment("●", base + Style(color=color(self.app, "error")))
        if self.verdicts.pointer(row) == " " and row in self._noted:
            return Segment("⚑", base + Style(color=color(self.app, "accent")))
        return Segment(self.verdicts.pointer(row), base)

    def _is_hit(self, row: int) -> bool:
        at = int(np.searchsorted(self._hits, row))
        return at < len(self._hits) and int(self._hits[at]) == row

    def _cell(self, name: str, row: int) -> tuple[str, str]:
        recording = self._recording
        assert recording is not None
        columns, dark = recording.columns, self.app.current_theme.dark
        match name:
            case "moment":
                return str(columns.moment(row)), ""
            case "op":
                family = FAMILIES[int(recording.family[row])]
                return f"■ {recording.label(row)}", family.color(dark)
            case "group":
                return recording.group(row).title, ""
            case "seq":
                return str(int(columns.seq[row])), ""
            case "bytes":
                return figures.size(int(columns.size_bytes[row])), ""
            case "took":
                took = recording.took_ns(row)
                return ("-" if took is None else figures.duration(took)), ""
            case "bar":
                return self._bar(row), ""
            case "verdict":
                verdict = self.verdicts.of(recording, row)
                return verdict.text, NONFINITE[0 if dark else 1] if verdict.bad else self._good(verdict.good)
            case "source":
                return recording.source(row), ""
        raise ValueError(f"no column is named {name}")

    def _good(self, good: bool) -> str:
        return color(self.app, "success") if good else ""

    def _bar(self, row: int) -> str:
        """The wait on a scale of powers: what is long is seen at a glance."""
        assert self._recording is not None
        took = self._recording.took_ns(row)
        if not took or took < 1000:
            return ""
        most = np.log10(max(self._recording.longest_wait_ns, 10_000)) - 3
        return figures.bar(float((np.log10(took) - 3) / most))
