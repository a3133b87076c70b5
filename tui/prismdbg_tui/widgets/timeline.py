"""The timeline: a lane a group or a rank, blocks by family, the past bright and the future dim, and marks below."""

from __future__ import annotations

from rich.segment import Segment
from rich.style import Style
from rich.text import Text
from textual import events
from textual.content import Content
from textual.strip import Strip
from textual.widget import Widget

from prismdbg.model.moment import Moment
from prismdbg_tui.drawing import figures
from prismdbg_tui.drawing.colors import color
from prismdbg_tui.session.messages import CursorMoved
from prismdbg_tui.session.verdicts import Verdicts
from prismdbg_tui.timeline.axis import View
from prismdbg_tui.timeline.lanes_drawing import Cell, Marks, Paint, lane_cells, mark_cells, ruler_cells, segments
from prismdbg_tui.timeline.lanes_image import LanesImage, paint
from prismdbg_tui.timeline.op_families import FAMILIES
from prismdbg_tui.timeline.rank_sets import Lanes
from prismdbg_tui.timeline.recording import Recording
from prismdbg_tui.timeline.sensor_drawing import level_at, sensor_cells, times_of_cells
from prismdbg_tui.timeline.sensor_row import SensorRow
from prismdbg_tui.timeline.visible_range import VisibleRange

LABEL_WIDTH = 14
_FRAME = 4  # cells of the lower frame that its title never has


class Timeline(Widget, can_focus=True):
    """Knows the recording, the part of it that is seen, the cursor's row and the rank's."""

    BORDER_TITLE = "Timeline"

    def __init__(self) -> None:
        super().__init__(id="timeline", classes="pane")
        self._recording: Recording | None = None
        self.range: VisibleRange | None = None
        self._lanes: Lanes | None = None
        self._cursor = 0
        self._here: int | None = None
        self._is_to_come = self._is_past_end = False
        self._checkpoints: tuple[int, ...] = ()
        self._stops: tuple[int, ...] = ()
        self._compared = range(0)
        self._others: frozenset[Moment] = frozenset()
        self._other_rows: tuple[int, ...] = ()
        self._lane = -1
        self._top = 0
        self._dragged: int | None = None
        self._panned = False
        self._painted: tuple[tuple[object, ...], LanesImage] | None = None
        self._sensor = 0  # which of the recording's is shown; beyond the last: none

    def show(self, recording: Recording) -> None:
        self._recording = recording
        self.range = VisibleRange(recording)
        self._lanes = recording.by_group
        self._sensor = 0
        self._tell()

    def next_sensor(self) -> str:
        """The next one, or none; gives what is shown."""
        if self._recording is None:
            return "the recording is still being read"
        sensors = self._recording.sensors
        if not sensors:
            return "no telemetry in this recording: `prismdbg record --telemetry` keeps it"
        self._sensor = (self._sensor + 1) % (len(sensors) + 1)
        self._tell()
        shown = self._sensor_row
        return f"telemetry: {shown.described}" if shown is not None else "telemetry: not shown"

    def show_lanes(self, lanes: Lanes) -> None:
        self._lanes, self._lane, self._top = lanes, -1, 0
        self._tell()

    def place(self, cursor: int, here: int | None, *, is_to_come: bool = False, is_past_end: bool = False) -> None:
        """is_to_come: the rank has still to run its row. is_past_end: it is after the last one."""
        self._cursor, self._here, self._is_to_come, self._is_past_end = cursor, here, is_to_come, is_past_end
        if self.range is not None and self._recording is not None and cursor < len(self._recording):
            self.range.show(cursor)
            self._show_lane(self._lanes_of(cursor))
        self._tell()

    def mark(self, checkpoints: tuple[int, ...], stops: tuple[int, ...]) -> None:
        """Rows of checkpoints, and of stops of one's own."""
        self._checkpoints, self._stops = checkpoints, stops
        self.refresh()

    def judge(self, verdicts: Verdicts) -> None:
        """Where a replay was identical to the recording."""
        assert self._recording is not None
        self._compared = verdicts.compared(self._recording)
        others = verdicts.diverged | verdicts.synthesized
        if others != self._others:  # mostly there are more: each moment is looked for once
            is_more = others > self._others
            fresh = map(self._recording.exact_row, others - self._others if is_more else others)
            known = self._other_rows if is_more else ()
            self._others, self._other_rows = others, (*known, *(row for row in fresh if row is not None))
        self.refresh()

    def _identical(self, stretch: VisibleRange) -> frozenset[int]:
        """Cells of the replay's past without those of rows that were not compared, or differ."""
        if not self._compared:
            return frozenset()
        first, last = stretch.begin(self._compared[0]), stretch.end(self._compared[-1])
        cells = set(range(max(first, 0), last + 1))
        for row in self._other_rows:
            cells.difference_update(range(stretch.begin(row), stretch.end(row) + 1))
        return frozenset(cells)

    def choose_lane(self, lane: int) -> None:
        self._lane = lane
        if lane >= 0:
            self._show_lane(lane)
        self.refresh()

    def zoom(self, factor: float) -> None:
        """Around the cursor; 0: everything."""
        if self.range is not None:
            self.range.zoom(factor, around_row=self._cursor)
            self._tell()

    def pan(self, share: float) -> None:
        if self.range is not None:
            self.range.pan(share)
            self._tell()

    def change_axis(self) -> None:
        if self.range is not None:
            self.range.change_axis()
            self.place(self._cursor, self._here, is_to_come=self._is_to_come, is_past_end=self._is_past_end)

    def repaint(self) -> None:
        """In the theme's colours of now."""
        self._tell()

    @property
    def view(self) -> View:
        return self.range.view if self.range is not None else View(0.0, 1.0)

    @property
    def lanes(self) -> int:
        return len(self._lanes) if self._lanes is not None else 1

    @property
    def has_sensor(self) -> bool:
        """Whether it has a line of a sensor to show, beside those of the lanes."""
        return self._recording is not None and self._sensor < len(self._recording.sensors)

    @property
    def _sensor_row(self) -> SensorRow | None:
        """None also where the lanes need the room."""
        sensors = self._recording.sensors if self._recording is not None else []
        return sensors[self._sensor] if self._sensor < len(sensors) and self.size.height >= 4 else None

    @property
    def _room(self) -> int:
        """Lines for lanes: without the ruler, the marks, and a sensor."""
        return self.size.height - (2 if self._sensor_row is None else 3)

    @property
    def _rows_a_lane(self) -> int:
        return 2 if self._room >= 2 * self.lanes else 1

    def _lanes_of(self, row: int) -> int:
        assert self._recording is not None and self._lanes is not None
        return self._lanes.of(int(self._recording.rank_sets.of[row]))

    def _show_lane(self, lane: int) -> None:
        room = max(self._room // self._rows_a_lane, 1)
        self._top = min(max(self._top, lane - room + 1), lane)

    def _tell(self) -> None:
        if self._recording is not None and self.range is not None:
            left_out = self._lanes.left_out if self._lanes is not None else 0
            self.border_title = Content.assemble("Timeline", (f" · {self.range.described}", "dim"))
            rest = f"{left_out} more ranks" if left_out else ""
            legend = self._legend(self.size.width - len(rest) - _FRAME)
            self.border_subtitle = Content.assemble(*legend, (rest, "dim")).rstrip()
        self.refresh()

    def _legend(self, room: int) -> list[str | tuple[str, str]]:
        """What fits into `room` cells. Waits first: no lane names them, and each names its collectives' group."""
        assert self._recording is not None
        dark, parts = self.app.current_theme.dark, list[str | tuple[str, str]]()
        waits = ("▒ waits  ", "dim") if (left := room - len("▒ waits  ")) >= 0 else ""
        for number in self._recording.families:
            family = FAMILIES[number]
            if (left := left - len(family.name) - 4) >= 0:
                parts += [("■", family.color(dark)), f" {family.name}  "]
        return [*parts, waits]

    def _image(self) -> LanesImage:
        assert self._recording is not None and self.range is not None and self._lanes is not None
        stretch = self.range
        key = (id(stretch.axis), stretch.view, stretch.cells, id(self._lanes))
        if self._painted is None or self._painted[0] != key:
            image = paint(self._recording, self._lanes, stretch.axis, stretch.view, stretch.cells)
            self._painted = (key, image)
        return self._painted[1]

    def paint(self) -> Paint:
        assert self._recording is not None and self.range is not None
        stretch = self.range
        return Paint(
            background=self.background_colors[1].hex6,
            text=color(self.app, "foreground"),
            accent=color(self.app, "accent"),
            good=color(self.app, "success"),
            dark=self.app.current_theme.dark,
            colorless=self.app.no_color,
            present=self._present(stretch),
            cursor=stretch.begin(self._cursor),
            first=stretch.begin(self._recording.first) if self._recording.first else -1,
            beyond=stretch.end(max(self._recording.beyond - 1, 0)),
        )

    def _present(self, stretch: VisibleRange) -> int | None:
        """The last cell of the replay's past."""
        if self._here is None:
            return None
        if self._is_to_come:
            return stretch.begin(self._here) - 1 if self._here else -1  # no margin before the first one
        return stretch.end(self._here)

    def render_line(self, y: int) -> Strip:
        width, base = self.size.width, self.rich_style
        if self._recording is None or self.range is None or not len(self._recording):
            text = "reading the log ..." if self._recording is None else "no collective was recorded"
            return Strip([Segment(f" {text}" if y == 1 else "", base)]).adjust_cell_length(width, base)
        self.range.cells = max(width - LABEL_WIDTH, 1)
        colors = self.paint()
        if y == 0:
            title, cells = Text(" step"), self._ruler(self.range, colors)
        elif y == self.size.height - 1:
            title = self._where()
            cells = mark_cells(self._image(), self._marks(), self.range.cells, colors)
        elif y > self._room and (sensor := self._sensor_row) is not None:
            times_ns = times_of_cells(self.range, self._recording.columns.begun_ns)
            title = self._sensor_title(sensor, level_at(sensor, times_ns, colors.cursor))
            cells = sensor_cells(sensor, times_ns, colors)
        else:
            lane, part = divmod(y - 1, self._rows_a_lane)
            lane += self._top
            if lane >= self.lanes:
                return Strip.blank(width, base)
            title = self._lane_title(lane, part)
            cells = lane_cells(self._image(), lane, part, self._rows_a_lane, colors)
        return _joined(title, segments(cells), base, width, self.app.console)

    def _ruler(self, stretch: VisibleRange, colors: Paint) -> list[Cell]:
        return ruler_cells(stretch.ticks(), stretch.cells, colors, self._identical(stretch))

    def _marks(self) -> Marks:
        assert self._recording is not None and self.range is not None
        stretch, nan = self.range, self._recording.first_sent_nonfinite
        return Marks(
            first_nonfinite=stretch.begin(nan) if nan >= 0 else -1,
            here=self._rank_cell(stretch),
            checkpoints=tuple(stretch.begin(row) for row in self._checkpoints),
            stops=tuple(stretch.begin(row) for row in self._stops),
        )

    def _rank_cell(self, stretch: VisibleRange) -> int:
        """-1 where no rank runs."""
        if self._here is None:
            return -1
        return stretch.end(self._here) if self._is_past_end else stretch.begin(self._here)

    def _where(self) -> Text:
        assert self._recording is not None
        return Text(f" ▲ {self._recording.columns.moment(min(self._cursor, len(self._recording) - 1))}", "bold")

    def _sensor_title(self, sensor: SensorRow, level: str) -> Text:
        """Its name as far as there is room, and what it was at the cursor."""
        name = Text(f" {sensor.title}")
        name.truncate(LABEL_WIDTH - 2 - len(level), overflow="ellipsis")
        return name + Text(f" {level}", "bold")

    def _lane_title(self, lane: int, part: int) -> Text:
        assert self._lanes is not None
        entry = self._lanes.all[lane]
        chosen = "▌" if lane == self._lane else "◆" if entry.is_own else " "
        if part:
            counts = (figures.plural(entry.count, "call"), figures.count(entry.count))
            return Text(f"{' ' if entry.is_own else chosen}{figures.first_fitting(counts, LABEL_WIDTH - 2)}", "dim")
        title = entry.title
        if title.isdecimal():  # what torch calls a group that nobody named
            title = f"group {title}"
        return Text(chosen) + Text(title, "bold") + Text(f" {figures.ranks(entry.members)}", "dim")

    def on_resize(self) -> None:
        self._tell()

    def on_mouse_down(self, event: events.MouseDown) -> None:
        self._dragged, self._panned = event.x, False
        self.capture_mouse()

    def on_mouse_move(self, event: events.MouseMove) -> None:
        """The part that is seen goes with the mouse."""
        if self._dragged is not None and event.button and event.x != self._dragged and self.range is not None:
            self.pan((self._dragged - event.x) / self.range.cells)
            self._dragged, self._panned = event.x, True

    def on_mouse_up(self) -> None:
        self._dragged = None
        self.release_mouse()

    def on_click(self, event: events.Click) -> None:
        """To the nearest collective of the lane under the mouse. The end of a drag is no click."""
        if self._panned or self._recording is None or self.range is None or self._lanes is None:
            return
        if not len(self._recording):
            return
        cell, y = event.get_content_offset_capture(self)
        if y > self._room and y < self.size.height - 1:
            self.next_sensor()
            return
        lane = self._top + (y - 1) // self._rows_a_lane
        rows = self._lanes.rows(lane, self._recording.rank_sets) if 0 <= lane < self.lanes else None
        self.post_message(CursorMoved(self.range.nearest(cell - LABEL_WIDTH, rows)))

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        self._wheel(event, 1.25, 0.1)

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        self._wheel(event, 0.8, -0.1)

    def _wheel(self, event: events.MouseEvent, factor: float, share: float) -> None:
        """Zooms around the mouse; with shift or ctrl, pans."""
        event.stop()
        if self.range is None:
            return
        if event.shift or event.ctrl:
            self.range.pan(share)
        else:
            self.range.zoom(factor, around_cell=event.get_content_offset_capture(self).x - LABEL_WIDTH)
        self._tell()


def _joined(title: Text, cells: list[Segment], base: Style, width: int, console: object) -> Strip:
    title.truncate(LABEL_WIDTH - 1, overflow="ellipsis")
    title.pad_right(LABEL_WIDTH - len(title))
    head = Strip(title.render(console), LABEL_WIDTH).apply_style(base)  # type: ignore[arg-type]
    return Strip([*Segment.apply_style(head, base), *cells], width)
