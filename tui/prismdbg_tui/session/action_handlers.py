"""What each action does. The names of the methods are those of `actions`; those of the session go to the rank."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING

from prismdbg.errors import UsageError
from prismdbg_tui.memory.choices import MemoryPlace
from prismdbg_tui.memory.reader import NO_TRACE_HINT
from prismdbg_tui.memory.treemap_walk import Side
from prismdbg_tui.refusals import with_hint
from prismdbg_tui.screens.help import Help
from prismdbg_tui.session.actions import BY_NAME, unavailable
from prismdbg_tui.session.breakpoint_rows import breakpoint_at, rows_of_breakpoint
from prismdbg_tui.session.messages import Asked, Purpose
from prismdbg_tui.session.views import Phase
from prismdbg_tui.session.visible_panes import NUMBERED, behind, panes
from prismdbg_tui.start import WEB_PAGE

if TYPE_CHECKING:
    from prismdbg_tui.session.app import PrismApp
    from prismdbg_tui.session.cursor import CursorPosition
    from prismdbg_tui.widgets.treemap import Treemap

_NO_ROW = "no collective here, or the log is still being read"
_NEXT_ZOOM = 0.5
_PAN = 0.25


class ActionHandlers:
    def __init__(self, app: PrismApp) -> None:
        self._app = app
        self._row = 0  # where the cursor was when the prompt was opened: a rank that stops meanwhile takes it along

    def do(self, name: str) -> None:
        self.carry_out(lambda: self._do(name))

    def carry_out(self, deed: Callable[[], None]) -> None:
        """Says why where it cannot be done, and what to do instead where an error says that. An error of before is over
        once something else could be done."""
        self._app.panes.status.confirm("")
        try:
            deed()
        except UsageError as error:
            if error.hint and self._app.panes.status.is_free:
                self._app.panes.status.fail(with_hint(error))
            else:  # the status line says what runs
                self._app.refuse(with_hint(error))
        else:
            self._app.panes.status.forget_error()

    def _do(self, name: str) -> None:
        action, app = BY_NAME[name], self._app
        if reason := unavailable(action, live=app.live is not None):
            raise UsageError(reason)
        if hasattr(self, name):
            getattr(self, name)()
        elif name.startswith("pane_"):
            self._numbered(int(name.removeprefix("pane_")))
        else:
            app.type_line(action.verb)

    @property
    def _position(self) -> CursorPosition:
        if self._app.position is None or not len(self._app.position.recording):
            raise UsageError(_NO_ROW)
        return self._app.position

    def until(self) -> None:
        """Stops on the way are kept to; back, there is only the place itself."""
        position = self._position
        ahead = position.here is None or position.cursor > position.here
        self._app.type_line(f"{'until' if ahead else 'goto'} {position.moment}")

    def pause(self) -> None:
        self._app.interrupt()

    def restart(self) -> None:
        """Where the rank is gone the cursor may be anywhere: then it is the latest checkpoint of all."""
        checkpoints = self._app.state.checkpoints
        if self._app.state.phase is not Phase.LOST:
            position = self._position
            moment = position.moment
            if position.cursor == position.here:  # between two collectives its row is before it
                moment = max(moment, self._app.state.position)
            checkpoints = tuple(checkpoint for checkpoint in checkpoints if checkpoint.position <= moment)
        number = max((checkpoint.position, checkpoint.number) for checkpoint in checkpoints)[1] if checkpoints else 0
        self._app.type_line(f"restart {number}")

    def memory(self) -> None:
        self._app.layout.choose("memory")
        self._app.type_line("memory")

    def up(self) -> None:
        self._app.views.choose_frame(by=1)

    def down(self) -> None:
        self._app.views.choose_frame(by=-1)

    def here(self) -> None:
        if (here := self._position.here) is None:
            raise UsageError("no rank is running here")
        self._app.navigation.move(here)

    def incident(self) -> None:
        self._app.incident.go()

    def earlier(self) -> None:
        self._app.panes.collectives.action_move(-1)

    def later(self) -> None:
        self._app.panes.collectives.action_move(1)

    def first(self) -> None:
        self._app.panes.collectives.go_to_line(0)

    def last(self) -> None:
        self._app.panes.collectives.go_to_line(self._app.panes.collectives.count - 1)

    def search(self) -> None:
        self._app.panes.prompt.ask(Purpose.SEARCH)

    def filter(self) -> None:
        self._app.panes.prompt.ask(Purpose.FILTER, self._app.navigation.filtered_by)

    def previous_hit(self) -> None:
        self._hit(-1)

    def next_hit(self) -> None:
        self._hit(1)

    def _hit(self, direction: int) -> None:
        if not len(self._position.hits):
            raise UsageError(f"no matches: press {self._app.keys_shown['search']} to search")
        self._app.navigation.move(self._position.next_hit(direction))

    def lane_before(self) -> None:
        self._app.navigation.choose_lane(-1)

    def lane_after(self) -> None:
        self._app.navigation.choose_lane(1)

    def lanes(self) -> None:
        self._app.navigation.change_lanes()
        self._app.layout.apply()

    def zoom_in(self) -> None:
        self._app.panes.timeline.zoom(_NEXT_ZOOM)

    def zoom_out(self) -> None:
        self._app.panes.timeline.zoom(1 / _NEXT_ZOOM)

    def zoom_all(self) -> None:
        self._app.panes.timeline.zoom(0)

    def pan_left(self) -> None:
        self._app.panes.timeline.pan(-_PAN)

    def pan_right(self) -> None:
        self._app.panes.timeline.pan(_PAN)

    def axis(self) -> None:
        self._app.panes.timeline.change_axis()

    def sensor(self) -> None:
        self._app.confirm(self._app.panes.timeline.next_sensor())
        self._app.layout.apply()

    def memory_by(self) -> None:
        self._app.views.memory.change_grouping()

    def memory_mark(self) -> None:
        self._app.views.memory.mark(self._memory_place)
        self._app.views.look_at_difference()

    def memory_step(self) -> None:
        self._app.views.memory.compare_with_a_step_before(self._memory_place)
        self._app.views.look_at_difference()

    @property
    def _memory_place(self) -> MemoryPlace:
        app = self._app
        if (place := app.views.memory_place) is None:
            raise UsageError(_NO_ROW)
        if app.views.memory_trace is None:
            to_trace = f"press {app.keys_shown['memory']} to trace it" if app.live is not None else NO_TRACE_HINT
            raise UsageError(f"no memory trace at {place.at}", hint=to_trace)
        return place

    def memory_shape(self) -> None:
        self._app.panes.memory.change_shape()

    @property
    def _areas(self) -> Treemap:
        if not self._app.panes.memory.map.display:
            raise UsageError(f"not in the treemap: press {self._app.keys_shown['memory_shape']} to show it")
        return self._app.panes.memory.map

    def area_left(self) -> None:
        self._areas.walk(Side.LEFT)

    def area_right(self) -> None:
        self._areas.walk(Side.RIGHT)

    def area_up(self) -> None:
        self._areas.walk(Side.ABOVE)

    def area_down(self) -> None:
        self._areas.walk(Side.BELOW)

    def area_open(self) -> None:
        self._areas.go_in()

    def area_close(self) -> None:
        self._areas.go_out()

    def breakpoint(self) -> None:
        """Set, or taken away where one is."""
        position = self._position
        known = breakpoint_at(position.recording, self._app.state.stops, position.cursor)
        self._app.type_line(f"break {position.moment}" if known is None else f"delete {known.number}")

    def condition(self) -> None:
        position = self._position
        self._row = position.cursor
        known = breakpoint_at(position.recording, self._app.state.stops, self._row)
        self._app.condition_of = known.number if known is not None else None
        self._app.panes.prompt.ask(Purpose.CONDITION)

    def temporary(self) -> None:
        """Set, or taken away where one is."""
        position = self._position
        once = tuple(stop for stop in self._app.state.stops if stop.once)
        known = breakpoint_at(position.recording, once, position.cursor)
        self._app.type_line(f"tbreak {position.moment}" if known is None else f"delete {known.number}")

    def ignore(self) -> None:
        self._app.condition_of = self._breakpoint_here()
        self._app.panes.prompt.ask(Purpose.IGNORE)

    def logpoint(self) -> None:
        self._app.type_line(f"logpoint {self._breakpoint_here()}")

    def _breakpoint_here(self) -> int:
        """The one on just this collective, else one that was hit here, or that is about it among others."""
        position, state = self._position, self._app.state
        known = breakpoint_at(position.recording, state.stops, position.cursor)
        if known is not None:
            return known.number
        if state.hit_here and position.cursor == position.here:
            return state.hit_here[0]
        for stop in state.stops:
            if position.cursor in rows_of_breakpoint(position.recording, stop):
                return stop.number
        raise UsageError(f"no breakpoint here: press {self._app.keys_shown['breakpoint']} to set one")

    def who_wrote(self) -> None:
        self._app.panes.prompt.ask(Purpose.WHO)

    def note(self) -> None:
        position = self._position
        self._row = position.cursor
        self._app.panes.prompt.ask(Purpose.NOTE, self._app.notes.all.get(position.moment, ""))

    def bookmark(self) -> None:
        moment, notes = self._position.moment, self._app.notes
        if notes.all.get(moment):
            raise UsageError(f"{moment} has a note: press {self._app.keys_shown['note']} to change it")
        notes.set(moment, None if moment in notes.all else "")

    def next_note(self) -> None:
        self._app.navigation.go_to(self._app.notes.following(self._position.moment))

    def compare(self) -> None:
        self._app.panes.prompt.ask(Purpose.COMPARE)

    def asked(self, message: Asked) -> None:
        """What was typed into the prompt."""
        match message.purpose:
            case Purpose.WHO if message.text:
                self._app.type_line(f"who wrote {message.text}")
            case Purpose.NOTE:
                self._app.notes.set(self._position.recording.columns.moment(self._row), message.text or None)
            case Purpose.COMPARE if message.text:
                self._app.views.compare(message.text)
            case Purpose.IGNORE if message.text:
                self._app.type_line(f"ignore {self._app.condition_of} {message.text}")
            case Purpose.WATCH if message.text:
                self._app.type_line(f"watch {message.text}")
            case Purpose.CONDITION:
                self._set_condition(message.text)
            case Purpose.FILTER:
                self._app.navigation.filtered_by = message.text
                self._app.views.find(message.text, keeps=True)
            case Purpose.SEARCH:
                self._app.views.find(message.text, keeps=False)

    def _set_condition(self, text: str) -> None:
        """Of the breakpoint there; else of one on every such collective."""
        if self._app.condition_of is not None:
            self._app.type_line(f"condition {self._app.condition_of} {text}".rstrip())
        else:
            recording, row = self._position.recording, self._row
            what = f"break {recording.label(row)} on {recording.group(row).title}"
            self._app.type_line(f"{what} if {text}" if text else what)

    def watch(self) -> None:
        self._app.panes.prompt.ask(Purpose.WATCH)

    def command(self) -> None:
        self._app.layout.begin_command()

    def pane_after(self) -> None:
        self._pane(1)

    def pane_before(self) -> None:
        self._pane(-1)

    def _numbered(self, number: int) -> None:
        pane = NUMBERED[number - 1]
        if pane not in panes(live=self._app.live is not None):
            raise UsageError("this view is read-only, so nothing is printed: use `prismdbg debug`")
        self._app.layout.choose(pane)

    def _pane(self, by: int) -> None:
        every = panes(live=self._app.live is not None)
        at = every.index(self._app.layout.pane)
        self._app.layout.choose(every[(at + by) % len(every)])

    def swap(self) -> None:
        chosen = self._app.layout.pane
        self._app.layout.choose(behind(chosen) or behind("collectives"))

    def maximise(self) -> None:
        self._app.layout.maximise()

    def copy_moment(self) -> None:
        """A value, where the pane of values is chosen: the first one of it, which was asked for last."""
        if self._app.layout.pane == "values":
            title, text = self._app.panes.values.first()
            self._copy(text, title)
        else:
            moment = str(self._position.moment)
            self._copy(moment, moment)

    def copy_link(self) -> None:
        page = os.environ.get(WEB_PAGE)
        if page is None:
            raise UsageError("a moment has a link in a browser only: `prismdbg open --web`")
        link = f"{page}/at/{self._position.moment}"
        self._copy(link, link)

    def _copy(self, text: str, name: str) -> None:
        self._app.copy_to_clipboard(text)
        self._app.confirm(f"{name} copied to the terminal's clipboard")

    def theme(self) -> None:
        names = sorted(self._app.available_themes)
        self._app.theme = names[(names.index(self._app.theme) + 1) % len(names)]
        self._app.confirm(f"theme: {self._app.theme}")

    def help(self) -> None:
        self._app.push_screen(Help(self._app.keys_shown, live=self._app.live is not None))

    def leave(self) -> None:
        self._app.leave()
