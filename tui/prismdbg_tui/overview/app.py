"""The overview: a heat map of all ranks, what is under the cursor, and the iteration as a whole. Ends with the rank one
drops into, or with none."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import ClassVar

from rich.text import Text
from textual import work
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Horizontal, VerticalScroll
from textual.widgets import Input, Label, Static
from textual.worker import get_current_worker

from prismdbg.errors import PrismError, UsageError
from prismdbg.simulate.engine.critical_path import critical_path
from prismdbg.simulate.engine.simulate import simulate
from prismdbg.simulate.report import report
from prismdbg.simulate.report.report import PathRow
from prismdbg_tui.drawing.colors import color
from prismdbg_tui.drawing.themes import use_themes
from prismdbg_tui.overview import words
from prismdbg_tui.overview.heat_map import HeatMap
from prismdbg_tui.overview.help_sheet import OverviewHelp
from prismdbg_tui.overview.job import OverviewJob
from prismdbg_tui.overview.keys import LINE_ACTIONS, OPENS_A_LINE, OVERVIEW_ACTIONS, bindings
from prismdbg_tui.overview.rank_screen import RankScreen
from prismdbg_tui.overview.simulated import SimulatedRecording
from prismdbg_tui.overview.view import MapView
from prismdbg_tui.screens.action_app import ActionApp
from prismdbg_tui.session import keymap

_WIDE = (110, 30)  # from so many columns and lines on the iteration has a place of its own
_LEAST_ITERATION = 15  # lines, with all that stands around it
_FRAME = 3  # lines of the map that are no cells
_EDGES = 2  # columns beside what is said of the rank


@dataclass(frozen=True, slots=True)
class Drop:
    """Into a rank that really ran: its record, or, where it `runs`, the rank itself."""

    rank: int
    runs: bool


class OverviewApp(ActionApp[Drop | None]):
    CSS_PATH: ClassVar[list[str | PurePath]] = [
        Path(__file__).parents[1] / "styles.tcss",
        Path(__file__).with_name("overview.tcss"),
    ]
    BINDINGS: ClassVar[list[BindingType]] = bindings(OVERVIEW_ACTIONS)

    def __init__(
        self, job: OverviewJob, *, keys: Mapping[str, str] | None = None, at: int | None = None, refused: str = ""
    ) -> None:
        super().__init__(OVERVIEW_ACTIONS, keys, live=False, refused=refused)
        self.job = job
        self.map_view = MapView(job)
        if at is not None:
            self.map_view.go_to(at)
        self.path: Sequence[PathRow] | None = None
        self.map = HeatMap(self.map_view)
        self._rank_text, self._text = Static("", id="rank"), Static("")
        self._iteration = VerticalScroll(self._text, id="iteration", classes="pane")
        self._prompt = Horizontal(Label("rank"), Input(compact=True, placeholder="617    pp=1 dp=13"), id="prompt")

    def compose(self) -> ComposeResult:
        yield self.head
        yield self.map
        yield self._rank_text
        yield self._iteration
        yield self._prompt
        yield self.keybar

    def on_mount(self) -> None:
        use_themes(self)
        self._iteration.border_title = "The iteration"
        self._arrange()
        self.map.focus()
        self.show()
        self._find_path()

    # what is shown

    def show(self) -> None:
        """After every key: the map, and what is under the cursor."""
        self.map.show()
        self._say_of_rank()

    def _say_of_rank(self) -> None:
        accent = color(self, "accent")
        cell = words.of_cell(self.map_view, self.size.width - _EDGES)
        self._rank_text.update(words.of_rank(self.map_view, accent) + Text("\n") + cell)

    def _arrange(self) -> None:
        """The map alone where there is little room; `iteration` shows the other."""
        wide = self.size.width >= _WIDE[0] and self.size.height >= _WIDE[1]
        chosen = self._iteration.has_class("-chosen")
        self._iteration.display = wide or chosen
        self.map.display = wide or not chosen
        most = self.size.height - _LEAST_ITERATION
        self.map.styles.height = min(self.map_view.rows_needed + _FRAME, most) if wide else "1fr"
        accent = color(self, "accent")
        heading = words.heading(self.job)
        self.show_head("simulated", "warning", self.job.name, heading, dropped_first=words.DROPPED_FIRST)
        self._text.update(words.of_iteration(self.job, self.path, self.size.width - 6, accent))

    def repaint(self) -> None:
        self._arrange()
        self.keybar.paint()
        self.show()

    @work(thread=True, exclusive=True, group="path")
    def _find_path(self) -> None:
        """It takes another simulation."""
        timeline = self.job.timeline
        try:
            traced = simulate(timeline.graph, timeline.cluster, trace=True)
            rows: Sequence[PathRow] = report.path_rows(critical_path(traced))
        except PrismError as error:
            self.call_from_thread(self.refuse, f"no critical path: {error}")
            return
        self.call_from_thread(self._path_found, rows)

    def _path_found(self, rows: Sequence[PathRow]) -> None:
        self.path = rows
        self._arrange()

    # what is done

    def on_heat_map_chosen(self, message: HeatMap.Chosen) -> None:
        self.map_view.choose_cell(message.cell)
        self.show()
        if message.drop:
            self.action_act("drop")

    def on_heat_map_fitted(self) -> None:
        self._say_of_rank()

    def on_heat_map_wheel(self, message: HeatMap.Wheel) -> None:
        self.action_act("zoom_in" if message.closer else "zoom_out")

    def on_input_submitted(self, message: Input.Submitted) -> None:
        message.stop()
        self._close_prompt()
        if message.value.strip():
            self._try(lambda: self.map_view.go_to(self.map_view.rank_named(message.value)))

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """In a line, and in a screen above, every character is its own."""
        if action == "act" and parameters == (OPENS_A_LINE,):
            return self._is_seen and not isinstance(self.focused, Input)
        return (self._is_seen or action != "act") and super().check_action(action, parameters)

    @property
    def _is_seen(self) -> bool:
        """No screen is above the map."""
        return len(self.screen_stack) == 1

    def act(self, name: str) -> None:
        if self._prompt.display:
            return
        moves = self.moves()
        if name in moves:
            self._try(moves[name])
        else:
            getattr(self, f"_do_{name}")()

    def moves(self) -> dict[str, Callable[[], None]]:
        """What changes where one looks, by the action's name."""
        look = self.map_view
        return {
            "next_metric": lambda: look.change_metric(1),
            "previous_metric": lambda: look.change_metric(-1),
            "first_metric": lambda: look.choose_metric(0),
            "second_metric": lambda: look.choose_metric(1),
            "third_metric": lambda: look.choose_metric(2),
            "fourth_metric": lambda: look.choose_metric(3),
            "fifth_metric": lambda: look.choose_metric(4),
            "sixth_metric": lambda: look.choose_metric(5),
            "rows": look.change_rows,
            "columns": look.change_columns,
            "swap": look.swap,
            "fold": look.change_fold,
            "scale": look.change_scale,
            "zoom_in": look.zoom_in,
            "zoom_out": look.zoom_out,
            "zoom_all": look.zoom_all,
            "left": lambda: look.move(0, -1),
            "right": lambda: look.move(0, 1),
            "up": lambda: look.move(-1, 0),
            "down": lambda: look.move(1, 0),
            "before_inside": lambda: look.step_inside(-1),
            "after_inside": lambda: look.step_inside(1),
            "smaller": lambda: look.next_by_value(1),
            "larger": lambda: look.next_by_value(-1),
            "largest": look.largest,
        }

    def _try(self, deed: Callable[[], None]) -> None:
        try:
            deed()
        except UsageError as error:
            self.refuse(f"{error}\n{error.hint}".rstrip())
        self.show()

    def _do_drop(self) -> None:
        if self.map_view.rank in self.job.ran:
            self._leave(Drop(self.map_view.rank, runs=False))
        else:
            self._do_simulated()

    def _do_debug(self) -> None:
        if self.map_view.rank in self.job.ran:
            self._leave(Drop(self.map_view.rank, runs=True))
        else:
            self.refuse(f"rank {self.map_view.rank} cannot be debugged: {self.job.who_ran(self.map_view.rank)}")

    def _leave(self, drop: Drop) -> None:
        """In a browser the rank has a page of its own; the way back is the browser's."""
        if self.is_web:
            self.open_url(f"/{'debug' if drop.runs else 'open'}/{drop.rank}", new_tab=False)  # see `web`
        else:
            self.exit(drop)

    @work(thread=True, exclusive=True, group="rank")
    def _do_simulated(self) -> None:
        job, rank = self.job, self.map_view.rank
        timeline = simulate(job.timeline.graph, job.timeline.cluster, of_rank=rank)
        recording = SimulatedRecording(timeline, rank)
        title = f"{job.mesh.say(rank)} · {job.class_names[int(job.class_of[rank])]}, {job.who_ran(rank)}"
        if not get_current_worker().is_cancelled:  # another rank was asked for since
            self.call_from_thread(self._show_rank, recording, title)

    def _show_rank(self, recording: SimulatedRecording, title: str) -> None:
        if self._is_seen:
            self.push_screen(RankScreen(recording, title, keymap.in_force({}, LINE_ACTIONS)))

    def _do_go_to(self) -> None:
        self._prompt.display = True
        line = self._prompt.query_one(Input)
        line.value = ""
        self.screen.set_focus(line)  # at once: the next keys may be there already

    def _close_prompt(self) -> None:
        self._prompt.display = False
        self.screen.set_focus(self.map)

    def key_escape(self) -> None:
        """Out of the line; else out of the iteration."""
        if self._prompt.display:
            self._close_prompt()
        elif self._iteration.has_class("-chosen"):
            self._do_iteration()

    def _do_iteration(self) -> None:
        self._iteration.toggle_class("-chosen")
        self._arrange()
        (self._iteration if self._iteration.has_class("-chosen") else self.map).focus()

    def action_focus_next(self) -> None:
        if self._is_seen:
            self._do_iteration()
        else:
            super().action_focus_next()

    def _do_help(self) -> None:
        self.push_screen(OverviewHelp(self.keys_shown, OVERVIEW_ACTIONS))
