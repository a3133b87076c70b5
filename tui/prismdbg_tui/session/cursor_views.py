"""What the panes show of the place under the cursor: of the living rank where it stands there, else of the record."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from textual.message import Message
from textual.timer import Timer

from prismdbg.capsule.manifest import IncidentKind
from prismdbg.errors import UsageError
from prismdbg.log.timeline_file import TIMELINE
from prismdbg.model.breakpoints import StopReason
from prismdbg.model.frame import Frame
from prismdbg.model.typed_path import typed_path
from prismdbg.session.line import Verb
from prismdbg_tui.memory.choices import MemoryChoices, MemoryPlace
from prismdbg_tui.memory.reader import MemoryRequest
from prismdbg_tui.screens.daemon_threads import carried_through
from prismdbg_tui.session.comparer import compared
from prismdbg_tui.session.messages import MemoryRead, RecordedRead, SearchEnded
from prismdbg_tui.session.panes import Panes
from prismdbg_tui.session.reader import CapsuleReader
from prismdbg_tui.session.views import Phase

if TYPE_CHECKING:
    from prismdbg_tui.session.app import PrismApp
    from prismdbg_tui.session.cursor import CursorPosition

EXPORT_TIMELINE = f"{Verb.EXPORT} {TIMELINE} "
LOOK_AFTER_S = 0.06  # a row that the cursor only passes is not looked at


class CursorViews:
    def __init__(self, app: PrismApp, panes: Panes, reader: CapsuleReader) -> None:
        self._app = app
        self._panes = panes
        self._reader = reader
        self._frame: int | None = None
        self._frame_is_of: tuple[Frame, ...] = ()  # `_outside` when it was chosen
        self._timers: dict[str, Timer] = {}
        self.searches = 0  # under way
        self._asked_memory: MemoryRequest | None = None  # the newest
        self._untold = False  # which ends of a difference were chosen
        self.memory = MemoryChoices(self.look_at_memory)

    @property
    def at_rank(self) -> bool:
        """The cursor is where the rank stands."""
        state = self._app.state
        return state.phase is Phase.STOPPED and state.can_look and self._app.cursor == self._app.here

    @property
    def _outside(self) -> tuple[Frame, ...]:
        """Where the rank is, outside of its calls, if the cursor is there; else empty."""
        state = self._app.state
        return state.frames if state.is_outside and self._app.cursor == self._app.here else ()

    @property
    def frame(self) -> int:
        """From which one looks."""
        return self._app.state.frame if self.at_rank else self._frame or 0

    def _frames_of(self, position: CursorPosition) -> tuple[Frame, ...]:
        return self._outside or position.recording.columns.collective(position.cursor).frames

    def again(self, *, elsewhere: bool) -> None:
        """`elsewhere`: the cursor moved, so the program's own frame is looked from; so it is in a stack that is new."""
        if elsewhere or self._outside != self._frame_is_of:
            self._frame, self._frame_is_of = None, self._outside
        if self.at_rank:
            self._panes.show_stop(self._app.state, self._app.position)
        else:
            self._later("look", self._look)
        self.look_at_memory()

    def choose_frame(self, by: int) -> None:
        position, live = self._app.position, self._app.live
        if self.at_rank and live is not None:
            live.choose_frame(by)
        elif position is not None and len(position.recording):
            frames = self._frames_of(position)
            chosen = self.frame + by
            if not 0 <= chosen < len(frames):
                raise UsageError("this is the outermost frame" if by > 0 else "this is the innermost frame")
            self._frame = chosen
            self._look()

    def looked(self, message: RecordedRead) -> None:
        position = self._app.position
        if position is not None and message.row == position.cursor and not self.at_rank:
            if message.frames != self._frames_of(position):  # asked for before the rank came to be there
                return
            self._frame = message.frame
            self._panes.show_recorded(message, position.recording)

    @property
    def memory_place(self) -> MemoryPlace | None:
        """Where the cursor is; of a rank that stands there also between two collectives."""
        position, trace = self._app.position, self._app.state.trace
        if self.at_rank or self._is_asked_here:
            here = self._app.state.moment
            return MemoryPlace(
                here, trace.at if trace.folder is not None else None if self._raised_as_recorded else here
            )
        if position is None or not len(position.recording):
            return None
        return MemoryPlace(position.moment, position.moment)

    @property
    def _is_asked_here(self) -> bool:
        """While the rank is traced up to where it stood, that is still the place: else the pane showed the memory of
        the collective under the cursor, for a moment."""
        position, state = self._app.position, self._app.state
        is_here = position is not None and position.cursor == position.here
        return is_here and state.phase is Phase.RUNNING and state.moment.op > 0

    @property
    def _raised_as_recorded(self) -> bool:
        """The recorded trace ends where the rank stands: at the exception that ended the recorded program, too."""
        state, incident = self._app.state, self._app.capsule.manifest.incident
        return (
            state.reason == StopReason.EXCEPTION
            and incident.kind in (IncidentKind.EXCEPTION, IncidentKind.OUT_OF_MEMORY)
            and incident.moment == state.moment
        )

    def look_at_memory(self) -> None:
        """Once the cursor rests, and only where somebody sees it."""
        if self._panes.memory.display:
            self._later("memory", self._look_at_trace)

    def look_at_difference(self) -> None:
        """One of its ends was chosen. Whether the trace contains that is known when it was read, seen or not."""
        self._untold = True
        self._later("memory", self._look_at_trace)

    def memory_read(self, message: MemoryRead) -> None:
        """Where the trace lacks an end of a difference, there is none; the end that it has stays marked. The pane says
        which ends there are where it is seen."""
        if message.request is not None and message.request is not self._asked_memory:
            return  # an older one that took longer
        view = message.view
        untold, self._untold = self._untold, False
        if view.refused:
            self.memory.forget()
            self.memory.marked = view.marked
            self._panes.status.fail(view.refused)
        elif untold and not self._panes.memory.display:
            self._app.confirm(self.memory.in_words(self._app.keys_shown["memory_mark"]))
        self._panes.memory.show(view)

    @property
    def memory_trace(self) -> Path | None:
        """Of the replayed rank, or what the recorded one left."""
        return self._app.state.trace.folder or self._reader.trace

    def read(self) -> None:
        self._work(self._reader.read, "read")

    def diagnose(self) -> None:
        self._work(self._reader.finding, "diagnose")

    def compare(self, what: str) -> None:
        """It unpacks what is packed."""
        self._work(carried_through(lambda: compared(self._app.capsule, what)), "compare", exclusive=True)

    def find(self, pattern: str, *, keeps: bool) -> None:
        if (position := self._app.position) is None:
            return

        def work() -> None:
            try:
                self._app.post_message(self._reader.find(position.recording, pattern, keeps=keeps))
            finally:
                self._app.post_message(SearchEnded())

        self.searches += 1
        self._app.run_worker(work, thread=True, group="find")

    def export_timeline(self, name: str) -> None:
        self._work(carried_through(partial(self._reader.export_timeline, typed_path(name))), "export")

    def _look(self) -> None:
        position = self._app.position
        if position is not None and len(position.recording):
            look = partial(self._reader.look, position.recording, position.cursor, self._frame, self._outside)
            self._work(look, "look", exclusive=True)

    def _look_at_trace(self) -> None:
        request = self.memory.request(self.memory_trace, self.memory_place)
        self._asked_memory = request = replace(request, is_live=self._app.live is not None)
        self._work(partial(self._reader.memory, request), "memory", exclusive=True)

    def _later(self, name: str, action: Callable[[], None]) -> None:
        if name in self._timers:
            self._timers[name].stop()
        self._timers[name] = self._app.set_timer(LOOK_AFTER_S, action)

    def _work(self, make: Callable[[], Message], group: str, *, exclusive: bool = False) -> None:
        """Away from the screen's thread; what comes of it is a message."""
        self._app.run_worker(lambda: self._app.post_message(make()), thread=True, group=group, exclusive=exclusive)
