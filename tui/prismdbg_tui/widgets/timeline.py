"""The time line: a lane a group, blocks by family, the past bright and the future dim, and marks below."""

from __future__ import annotations

import numpy as np
from rich.segment import Segment
from rich.style import Style
from rich.text import Text
from textual import events
from textual.strip import Strip
from textual.widget import Widget

from prismdbg_tui import figures
from prismdbg_tui.axis import Axis, View, make_axis, whole
from prismdbg_tui.colors import color
from prismdbg_tui.families import FAMILIES
from prismdbg_tui.lanes_drawing import Paint, lane_cells, mark_cells, ruler_cells, segments
from prismdbg_tui.lanes_image import LanesImage, paint
from prismdbg_tui.messages import CursorMoved
from prismdbg_tui.recording import Recording

LABEL_WIDTH = 14


class Timeline(Widget, can_focus=True):
    """Knows the recording, the part of it that is seen, the cursor's row and the rank's."""

    BORDER_TITLE = "Time line"

    def __init__(self) -> None:
        super().__init__(id="timeline", classes="pane")
        self._recording: Recording | None = None
        self._axis: Axis | None = None
        self._view = View(0.0, 1.0)
        self._cursor = 0
        self._here: int | None = None
        self._lane = -1
        self._top = 0
        self._painted: tuple[tuple[object, ...], LanesImage] | None = None

    def show(self, recording: Recording) -> None:
        self._recording = recording
        self._axis = make_axis(recording, by_time=True)
        self._view = whole(self._axis)
        self._tell()

    def place(self, cursor: int, here: int | None) -> None:
        self._cursor, self._here = cursor, here
        if self._axis is not None and cursor < len(self._axis.begin):
            self._view = self._view.showing(float(self._axis.begin[cursor]), self._axis)
            if self._recording is not None:
                self._show_lane(int(self._recording.lane_of[cursor]))
        self._tell()

    def choose_lane(self, lane: int) -> None:
        self._lane = lane
        if lane >= 0:
            self._show_lane(lane)
        self.refresh()

    def zoom(self, factor: float) -> None:
        """0: everything."""
        if self._axis is not None and len(self._axis.begin):
            around = float(self._axis.begin[min(self._cursor, len(self._axis.begin) - 1)])
            self._view = self._view.zoomed(factor, around, self._axis) if factor else whole(self._axis)
            self._tell()

    def pan(self, share: float) -> None:
        if self._axis is not None:
            self._view = self._view.panned(share, self._axis)
            self._tell()

    def change_axis(self) -> None:
        """By time, or by number; the same collectives stay in view as far as that can be."""
        if self._recording is not None and self._axis is not None:
            seen = self._axis.rows(self._view.start, self._view.start + self._view.span)
            everything = self._view.span >= whole(self._axis).span * 0.999
            self._axis = make_axis(self._recording, by_time=not self._axis.by_time)
            first, last = seen.start, max(min(seen.stop, len(self._recording)) - 1, 0)
            if everything or not len(self._recording):
                self._view = whole(self._axis)
            else:
                start, stop = float(self._axis.begin[first]), float(self._axis.end[last])
                self._view = View(start, max(stop - start, 1.0)).kept(self._axis)
            self.place(self._cursor, self._here)

    def repaint(self) -> None:
        """In the theme's colours of now."""
        self._tell()

    @property
    def view(self) -> View:
        return self._view

    @property
    def _rows_a_lane(self) -> int:
        lanes = len(self._recording.lanes) if self._recording is not None else 1
        return 2 if self.size.height - 2 >= 2 * lanes else 1

    @property
    def _cells(self) -> int:
        return max(self.size.width - LABEL_WIDTH, 1)

    def _show_lane(self, lane: int) -> None:
        room = max((self.size.height - 2) // self._rows_a_lane, 1)
        self._top = min(max(self._top, lane - room + 1), lane)

    def _tell(self) -> None:
        if self._recording is not None and self._axis is not None:
            seen = min(self._view.span, self._axis.span)
            width = figures.duration(seen) if self._axis.by_time else f"{figures.count(int(seen))} collectives"
            self.border_subtitle = (
                f"{self._legend()}[dim]{width}, {'by time' if self._axis.by_time else 'one by one'}[/]"
            )
        self.refresh()

    def _legend(self) -> str:
        assert self._recording is not None
        room, dark, parts = self.size.width - 34, self.app.current_theme.dark, []
        for number in self._recording.families:
            family = FAMILIES[number]
            if (room := room - len(family.name) - 4) > 0:
                parts.append(f"[{family.color(dark)}]■[/] {family.name}  ")
        return "".join(parts)

    def _image(self) -> LanesImage:
        assert self._recording is not None and self._axis is not None
        key = (id(self._axis), self._view, self._cells)
        if self._painted is None or self._painted[0] != key:
            self._painted = (key, paint(self._recording, self._axis, self._view, self._cells))
        return self._painted[1]

    def _cell(self, position: float) -> int:
        """-1 or the number of cells where it lies outside."""
        cell = int(((position - self._view.start) / self._view.span) * self._cells // 1)
        return min(max(cell, -1), self._cells)

    def _begin(self, row: int) -> int:
        assert self._axis is not None
        return self._cell(float(self._axis.begin[row])) if row < len(self._axis.begin) else self._cells

    def _paint(self) -> Paint:
        assert self._recording is not None and self._axis is not None
        background, (_, accent) = self.background_colors[1], ("", color(self.app, "accent"))
        present = self._cursor if self._here is None else self._here
        last = max(self._recording.beyond - 1, 0)
        return Paint(
            background=background.hex6,
            text=color(self.app, "foreground"),
            accent=accent,
            dark=self.app.current_theme.dark,
            colorless=self.app.no_color,
            present=self._cell(float(self._axis.end[present])) if present < len(self._axis.end) else self._cells,
            cursor=self._begin(self._cursor),
            first=self._begin(self._recording.first) if self._recording.first else -1,
            beyond=self._cell(float(self._axis.end[last])),
        )

    def render_line(self, y: int) -> Strip:
        width, base = self.size.width, self.rich_style
        if self._recording is None or not len(self._recording):
            text = "reading the log ..." if self._recording is None else "nothing was recorded"
            return Strip([Segment(f" {text}" if y == 1 else "", base)]).adjust_cell_length(width, base)
        colors = self._paint()
        if y == 0:
            title, cells = Text(" step"), ruler_cells(self._ticks(), self._cells, colors)
        elif y == self.size.height - 1:
            title, cells = self._where(), self._mark_cells(colors)
        else:
            lane, part = divmod(y - 1, self._rows_a_lane)
            lane += self._top
            if lane >= len(self._recording.lanes):
                return Strip.blank(width, base)
            title = self._lane_title(lane, part)
            cells = lane_cells(self._image(), lane, part, self._rows_a_lane, colors)
        title.truncate(LABEL_WIDTH - 1, overflow="ellipsis")
        title.pad_right(LABEL_WIDTH - len(title))
        head = Strip(title.render(self.app.console), LABEL_WIDTH).apply_style(base)
        return Strip([*Segment.apply_style(head, base), *segments(cells)], width)

    def _mark_cells(self, colors: Paint) -> list[tuple[str, Style]]:
        assert self._recording is not None
        nan, here = self._recording.first_sent_nonfinite, self._here
        return mark_cells(
            self._image(),
            self._begin(nan) if nan >= 0 else -1,
            self._begin(here) if here is not None else -1,
            self._cells,
            colors,
        )

    def _where(self) -> Text:
        assert self._recording is not None
        return Text(f" ▲ {self._recording.columns.moment(min(self._cursor, len(self._recording) - 1))}", "bold")

    def _lane_title(self, lane: int, part: int) -> Text:
        assert self._recording is not None
        entry = self._recording.lanes[lane]
        chosen = "▌" if lane == self._lane else " "
        if part:
            return Text(f"{chosen}{figures.count(entry.count)}", "dim")
        return (
            Text(chosen) + Text(entry.group.title or "?", "bold") + Text(f" {figures.ranks(entry.group.ranks)}", "dim")
        )

    def _ticks(self) -> dict[int, str]:
        """Steps' numbers by cell, as many as are legible."""
        assert self._recording is not None and self._axis is not None
        steps, begin = self._recording.columns.step, self._axis.begin
        part = self._axis.rows(self._view.start, self._view.start + self._view.span)
        if part.stop <= part.start:
            return {}
        first, last = int(steps[part.start]), int(steps[min(part.stop, len(steps)) - 1])
        stride = _stride((last - first + 1) / max(self._cells // 8, 1))
        ticks: dict[int, str] = {}
        free = 0
        for step in range(first - first % stride, last + 1, stride):
            row = int(np.searchsorted(steps, step))
            cell = self._cell(float(begin[row])) if row < len(begin) else -1
            if free <= cell < self._cells - len(str(step)):
                ticks[cell] = str(step)
                free = cell + len(str(step)) + 2
        return ticks

    def on_resize(self) -> None:
        self._tell()

    def on_click(self, event: events.Click) -> None:
        """To the nearest collective of the lane under the mouse."""
        if self._recording is None or self._axis is None or not len(self._recording):
            return
        cell, y = event.get_content_offset_capture(self)
        cell -= LABEL_WIDTH
        lane = self._top + (y - 1) // self._rows_a_lane
        position = self._view.start + (max(cell, 0) + 0.5) / self._cells * self._view.span
        rows = np.flatnonzero(self._recording.lane_of == lane) if 0 <= lane < len(self._recording.lanes) else None
        begin = self._axis.begin if rows is None or not len(rows) else self._axis.begin[rows]
        at = int(np.abs(begin - position).argmin())
        self.post_message(CursorMoved(at if rows is None or not len(rows) else int(rows[at])))

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        event.stop()
        if event.shift or event.ctrl:
            self.pan(0.1)
        else:
            self.zoom(1.25)

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        event.stop()
        if event.shift or event.ctrl:
            self.pan(-0.1)
        else:
            self.zoom(0.8)


def _stride(least: float) -> int:
    """1, 2, 5, 10, 20, ..."""
    power = 1
    while True:
        for factor in (1, 2, 5):
            if factor * power >= least:
                return factor * power
        power *= 10
