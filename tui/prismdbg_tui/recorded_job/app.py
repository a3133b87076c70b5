"""All ranks of a recorded job: what `why` finds, and one row a rank. Ends with the rank one opens, or with none."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import ClassVar

from rich.text import Text
from textual import work
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.timer import Timer
from textual.widgets import DataTable, Static

from prismdbg.diagnosis.lateness.time_parts import PARTS
from prismdbg.errors import PrismError
from prismdbg.jobs.run_overview import SENSORS, RankRow, RunOverview
from prismdbg.model.moment import Moment
from prismdbg_tui.drawing import figures
from prismdbg_tui.drawing.colors import color
from prismdbg_tui.drawing.finding_signs import SIGNS
from prismdbg_tui.drawing.themes import use_themes
from prismdbg_tui.overview.keys import bindings
from prismdbg_tui.recorded_job import time_words, words
from prismdbg_tui.recorded_job.help_sheet import JobHelp
from prismdbg_tui.recorded_job.keys import JOB_ACTIONS, OF_MAP, TABLE_ACTIONS
from prismdbg_tui.recorded_job.time_map import FRAME, TimeMap
from prismdbg_tui.recorded_job.time_view import TimePlace, TimeView
from prismdbg_tui.recorded_job.whole_finding import WholeFinding
from prismdbg_tui.refusals import of_reading, with_hint
from prismdbg_tui.screens.action_app import REASON_S, ActionApp
from prismdbg_tui.session.actions import Action
from prismdbg_tui.widgets.row_table import RowTable

_LEAST_AGAIN_S = 5.0
_AGAIN_SHARE = 10  # a run that takes long to read is read less often
_MOST_FINDINGS = 10  # lines, where the ranks need the others
_BESIDE = 6  # lines that are neither a finding nor a rank: header, frame of the findings, titles, waits, keys
_MORE_BESIDE = FRAME - 1 + 1  # with the map in place of the table: its frame for the titles, another line of waits
_BORDER = 4  # columns
_LEAST_STRIP = 8
_LEAST_COLUMNS = 3
_PADDING, _SCROLLBAR = 2, 1  # of a column; of the table
_TITLES = ("rank", "state", "moment", "last", "at", "waited", "awaited", "memory", "inside a collective")
_ORDERS: tuple[tuple[str, Callable[[RankRow], int]], ...] = (
    ("rank", lambda row: row.rank),
    ("waited", lambda row: -row.waited_ns),
    ("awaited", lambda row: -row.awaited_ns),
    ("memory", lambda row: -row.peak_bytes),
)


@dataclass(frozen=True, slots=True)
class OpenRank:
    """What was recorded of it, or, where it `runs`, its program again; `at`: where the selected finding is, or, on the
    map, the wait under the cursor."""

    rank: int
    runs: bool
    at: Moment | None


class JobApp(ActionApp[OpenRank | None]):
    CSS_PATH: ClassVar[list[str | PurePath]] = [
        Path(__file__).parents[1] / "styles.tcss",
        Path(__file__).with_name("job.tcss"),
    ]
    BINDINGS: ClassVar[list[BindingType]] = bindings(JOB_ACTIONS)

    def __init__(
        self,
        job: RunOverview,
        read: Callable[[], RunOverview],
        *,
        keys: Mapping[str, str] | None = None,
        at: int = -1,
        moment: Moment | None = None,
        refused: str = "",
        note: str = "",
        part: int | None = None,
    ) -> None:
        """`read`: the run again. at: the rank that has the cursor; else the one that the first finding is about.
        moment: where ranks open, until another finding is chosen. note: of an emulated run, why there is no map of all
        its ranks. part: of the time, where the map begins in place of the table."""
        super().__init__(TABLE_ACTIONS if job.is_imported else JOB_ACTIONS, keys, live=True, refused=refused)
        self.wanted = moment
        self.job, self._read = job, read
        self._order, self._took_s = 0, 0.0
        self._reading = 0  # the number of the newest one
        self._timer: Timer | None = None  # of the next one
        self.finding = 0
        self.rank = at if at >= 0 else self._suspect()
        self.part = part or 0
        self._findings = Static("", id="findings", classes="pane")
        self._waits = Static("", id="waits")
        self._note = Static(Text(figures.clean(note)), id="note")
        self._kind = "imported" if job.is_imported else "emulated" if note else "recorded"
        self.table, self.map = RowTable(id="ranks", cursor_type="row"), TimeMap()
        self.map_shown = self.map.display = (
            part is not None
        )  # also once the screen has ended, when no widget is displayed

    def compose(self) -> ComposeResult:
        yield self.head
        yield self._findings
        yield self.table
        yield self.map
        yield self._waits
        yield self._note
        yield self.keybar

    def on_mount(self) -> None:
        use_themes(self)
        self._findings.border_title = "Findings"
        self._note.display = bool(str(self._note.content))
        self._change_to(map_shown=self.map_shown)
        self.repaint()
        self._read_later()

    # what is shown

    @property
    def rows(self) -> list[RankRow]:
        return sorted(self.job.ranks, key=lambda row: (_ORDERS[self._order][1](row), row.rank))

    @property
    def part(self) -> int:
        """Of the time, under the cursor of the map."""
        return self._part

    @part.setter
    def part(self, part: int) -> None:
        """The middle of it is kept: while the job goes on, that time is in another part."""
        self._part, self._at_ns = part, self.job.begun_ns + (2 * part + 1) * self.job.lasted_ns // (2 * PARTS)

    def _suspect(self) -> int:
        verdicts = self.job.diagnosis.verdicts
        ranks = verdicts[self.finding].ranks if self.finding < len(verdicts) else ()
        known = [row.rank for row in self.job.ranks]
        return next((rank for rank in ranks if rank in known), known[0] if known else 0)

    def repaint(self) -> None:
        self._show_heading()
        self._show_findings()
        if self.map.display:
            self.map.show(self.rows, self.job, self._suspects)
        else:
            self._fill()
        self._show_waits()
        self.keybar.paint()

    def _show_heading(self) -> None:
        name = figures.clean(self.job.path.name or str(self.job.path))
        order = f"sorted by {_ORDERS[self._order][0]}" if self._order else ""
        heading = words.heading(self.job, self.wanted, order)
        self.show_head(self._kind, "success", name, heading, dropped_first=words.DROPPED_FIRST)

    def _show_findings(self) -> None:
        beside = _BESIDE + len(self.job.ranks) + 2 * self._note.display + _MORE_BESIDE * self.map.display
        room = max(min(_MOST_FINDINGS, max(self.size.height // 3, 3)), self.size.height - beside)
        shown = words.findings(self.job, self.finding, self._colors, room, self.size.width - _BORDER)
        self._findings.styles.height = min(len(shown.text.split()), room) + 2
        self._findings.border_subtitle = "" if shown.is_whole else f"{self.keys_shown['whole']}: the whole finding"
        self._findings.update(shown.text)

    @property
    def _colors(self) -> dict[str, str]:
        return {name: color(self, name) for _, name in SIGNS.values()}

    @property
    def _suspects(self) -> set[int]:
        return {rank for verdict in self.job.diagnosis.verdicts for rank in verdict.ranks[:1]}

    def _fill(self) -> None:
        suspects, rows, error = self._suspects, self.rows, color(self, "error")
        sensors = [title for title in SENSORS if any(title in row.sensors for row in rows)]
        texts = [
            words.cells(row, sensors, error if row.rank in suspects else "", partly=self.job.is_imported)
            for row in rows
        ]
        titles = [*_TITLES[:-1], *sensors]
        widths = [max([len(title), *(text[at].cell_len for text in texts)]) for at, title in enumerate(titles)]
        shown = _fitting(widths, self.size.width - _SCROLLBAR)
        left = self.size.width - sum(widths) - _PADDING * (len(titles) + 1) - 2 * _SCROLLBAR
        strip = left if left >= _LEAST_STRIP else 0
        self.table.clear(columns=True)
        for title, width in zip(titles[:shown], widths[:shown], strict=True):
            self.table.add_column(title, width=width, key=title)
        if strip:
            self.table.add_column(_TITLES[-1], width=strip, key=_TITLES[-1])
        for row, cells in zip(rows, texts, strict=True):
            inside = [Text(words.strip_of(row.inside, strip), "dim")] if strip else []
            self.table.add_row(*cells[:shown], *inside, key=str(row.rank))
        self._place()

    @property
    def _row(self) -> RankRow | None:
        return next((row for row in self.job.ranks if row.rank == self.rank), None)

    def _show_waits(self) -> None:
        row, width = self._row, self.size.width
        self.map.go_to(TimePlace(self.rank, self.part))
        if row is None:
            self._waits.update("")
        elif self.map.display:
            self._waits.update(time_words.of_cell(row, self.map.parts, self.job, width, color(self, "accent")))
        else:
            self._waits.update(words.waits(row, self.job, width))

    def _place(self) -> None:
        place = next((at for at, row in enumerate(self.rows) if row.rank == self.rank), 0)
        self.table.move_cursor(row=place, animate=False)

    def _read_again(self) -> None:
        if self._timer is not None:
            self._timer.stop()
        self._reading += 1
        self._read_away(self._reading)

    @work(thread=True, exclusive=True, group="read")
    def _read_away(self, number: int) -> None:
        began = time.monotonic()
        try:
            job = self._read()
        except (PrismError, OSError) as error:
            self.call_from_thread(self._was_read, number, None, with_hint(of_reading(error, "run")))
            return
        self._took_s = time.monotonic() - began
        self.call_from_thread(self._was_read, number, job)

    def _was_read(self, number: int, job: RunOverview | None, why: str = "") -> None:
        """An older reading may end after a newer one."""
        if number != self._reading:
            return
        if job is not None:
            self._take(job)
        else:
            self.refuse(f"the run cannot be read again: {why}", REASON_S)
        self._read_later()

    def _read_later(self) -> None:
        if self.job.is_running is not False and not self.job.is_imported:
            self._timer = self.set_timer(max(_LEAST_AGAIN_S, _AGAIN_SHARE * self._took_s), self._read_again)

    def _take(self, job: RunOverview) -> None:
        self.job = job
        self._part = min(max((self._at_ns - job.begun_ns) * PARTS // max(job.lasted_ns, 1), 0), PARTS - 1)
        self.finding = min(self.finding, max(len(job.diagnosis.verdicts) - 1, 0))
        self.repaint()

    # what is done

    def on_data_table_row_highlighted(self, message: DataTable.RowHighlighted) -> None:
        if message.row_key.value is not None and self.table.is_valid_row_index(message.cursor_row):
            self.rank = int(message.row_key.value)
            self._show_waits()

    def on_data_table_row_selected(self, message: DataTable.RowSelected) -> None:
        message.stop()
        self.action_act("drop")

    def _do_drop(self) -> None:
        self._leave(runs=False)

    def _do_debug(self) -> None:
        self._leave(runs=True)

    def _leave(self, *, runs: bool) -> None:
        """In a browser the rank has a page of its own; the way back is the browser's."""
        if self.job.is_imported:
            self.refuse("files of another tool contain no capsule, so you cannot open or debug a rank")
        elif self.is_web:
            moment = f"/at/{at}" if (at := self._moment()) is not None else ""
            self.open_url(f"/{'debug' if runs else 'open'}/{self.rank}{moment}", new_tab=False)
        else:
            self.exit(OpenRank(self.rank, runs, self._moment()))

    def _moment(self) -> Moment | None:
        if self.wanted is not None:
            return self.wanted
        row = self._row if self.map.display else None
        if row is not None and (wait := row.time.call_in(self.map.parts)) is not None:
            return wait.moment
        return self._of_finding()

    def _of_finding(self) -> Moment | None:
        """Where the finding is, if it is about the rank under the cursor."""
        verdicts = self.job.diagnosis.verdicts
        if self.finding < len(verdicts) and verdicts[self.finding].ranks[:1] == (self.rank,):
            return verdicts[self.finding].moment
        return None

    def _do_next_finding(self) -> None:
        self._find(1)

    def _do_previous_finding(self) -> None:
        self._find(-1)

    def _find(self, step: int) -> None:
        if count := len(self.job.diagnosis.verdicts):
            self.finding = (self.finding + step) % count
            self.rank = self._suspect()
            self.wanted = self._of_finding() if self.map.display else None
            self.repaint()

    def _do_whole(self) -> None:
        verdicts = self.job.diagnosis.verdicts
        if self.finding >= len(verdicts):
            self.refuse("no finding to show")
            return
        self.push_screen(WholeFinding(verdicts[self.finding], self._colors))

    def _do_next_order(self) -> None:
        self._order = (self._order + 1) % len(_ORDERS)
        self.repaint()

    def _do_again(self) -> None:
        self._read_again()

    def _do_help(self) -> None:
        self.push_screen(JobHelp(self.keys_shown))

    # the map of the time

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        if action == "act" and parameters[0] in OF_MAP:
            return self.map.display
        return super().check_action(action, parameters)

    def unavailable(self, action: Action) -> str:
        if action.name in OF_MAP and not self.map.display:
            return f"only on the map: {self.keys_shown['time']} shows it"
        return super().unavailable(action)

    def act(self, name: str) -> None:
        if reason := self.unavailable(next(each for each in self.shown_actions if each.name == name)):
            self.refuse(reason)
        else:
            super().act(name)

    def _do_time(self) -> None:
        self._change_to(map_shown=not self.map.display)
        self.wanted = None  # the map opens what it tells, and the table the finding
        self.part = self._row.time.longest_part()[1] if self._row is not None else 0
        self.call_after_refresh(self.repaint)  # the room for it is known then

    def _change_to(self, *, map_shown: bool) -> None:
        self.map_shown = self.map.display = map_shown
        self.table.display = not map_shown
        self._waits.set_class(map_shown, "-map")
        (self.map if map_shown else self.table).focus()

    def _do_earlier(self) -> None:
        self._move(lambda view, place: view.moved(place, 0, -1))

    def _do_later(self) -> None:
        self._move(lambda view, place: view.moved(place, 0, 1))

    def _do_up(self) -> None:
        self._move(lambda view, place: view.moved(place, -1, 0))

    def _do_down(self) -> None:
        self._move(lambda view, place: view.moved(place, 1, 0))

    def _do_before_inside(self) -> None:
        self._move(lambda view, place: view.beside(place, -1))

    def _do_after_inside(self) -> None:
        self._move(lambda view, place: view.beside(place, 1))

    def _do_longest(self) -> None:
        self._move(lambda view, _: view.longest())

    def _move(self, go: Callable[[TimeView, TimePlace], TimePlace]) -> None:
        if self.map.view is not None:
            self._go_to(go(self.map.view, TimePlace(self.rank, self.part)))

    def _go_to(self, place: TimePlace) -> None:
        """Ranks open where the cursor is, no longer at the moment that was asked for."""
        had, self.rank, self.part, self.wanted = self.wanted, place.rank, place.part, None
        if had is not None:
            self._show_heading()
        self._show_waits()

    def on_time_map_fitted(self, message: TimeMap.Fitted) -> None:
        message.stop()
        self._show_waits()

    def on_time_map_chosen(self, message: TimeMap.Chosen) -> None:
        self._go_to(message.place)
        if message.drop:
            self.action_act("drop")


def _fitting(widths: Sequence[int], room: int) -> int:
    """How many columns are shown whole, from the left: a number that is cut reads as another number."""
    shown = len(widths)
    while shown > _LEAST_COLUMNS and sum(widths[:shown]) + _PADDING * shown > room:
        shown -= 1
    return shown
