"""The thread that owns a replayed rank: starts it, carries lines to its debugger, tells what it does, cleans up."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from textual.message import Message

from prismdbg.errors import Defect, PrismError
from prismdbg.session.checkpoint import Checkpoint
from prismdbg.session.line import Verb
from prismdbg.session.trace_place import TracePlace
from prismdbg_tui.session.debugger_messages import DebuggerMessages
from prismdbg_tui.session.messages import Failed, LiveEnded, Said, StateChanged
from prismdbg_tui.session.output_tail import Output, OutputTail
from prismdbg_tui.session.views import Phase, State

if TYPE_CHECKING:  # to look at a record needs nothing that runs one
    from prismdbg.debugger.debugger import Debugger
    from prismdbg.session.notices import Notice

LOOK_S = 0.1
_CANCELLED = "the start was cancelled"
Tell = Callable[[Message], object]
Say = Callable[[str], None]


class Place(Protocol):
    """What is needed of `debugger.time_travel`."""

    runtime: str
    output: Output
    first_record: int
    on_cut: Callable[[int], None]

    @property
    def checkpoints(self) -> tuple[Checkpoint, ...]: ...


Opens = Callable[[Say], "AbstractContextManager[Any]"]
Debugs = Callable[[Any, Callable[["Notice"], object]], "Debugger"]


@dataclass(frozen=True, slots=True)
class _Command:
    """`line`: what was typed; empty for what is no line."""

    carry_out: Callable[[DebuggerMessages], None]
    line: str = ""


class Live(Protocol):
    """What the screen asks of a rank. Returns at once; answers come as messages."""

    @property
    def queued(self) -> tuple[str, ...]:
        """Lines that wait for what runs, in their order."""

    def start(self, tell: Tell) -> None: ...

    def type_line(self, text: str) -> None: ...

    def choose_frame(self, by: int) -> None: ...

    def pause(self) -> None: ...

    def close(self) -> None: ...

    def wait(self, bound_s: float) -> bool: ...


class _Cancelled(PrismError):
    """The person did not want to wait for the start."""


class LiveRank:
    """`opens` starts the rank, `debugs` makes its debugger; everything else is messages to `tell`, and commands from
    any thread. `first_lines` are carried out at once. `traced`: where the rank's memory trace lies."""

    def __init__(
        self,
        opens: Opens,
        debugs: Debugs,
        first_lines: tuple[str, ...] = (),
        traced: Callable[[Debugger], TracePlace] = lambda _: TracePlace(),
    ) -> None:
        self._opens = opens
        self._debugs = debugs
        self._traced = traced
        self._first_lines = first_lines
        self._commands: queue.Queue[_Command] = queue.Queue()
        self._closing, self._cancelled, self._again = threading.Event(), threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, name="prismdbg-live", daemon=True)
        self._tell: Tell = lambda _: None
        self._debugger: Debugger | None = None
        self._messages: DebuggerMessages | None = None
        self._state = State(phase=Phase.STARTING, since_s=time.monotonic(), doing="starting the replay")

    @property
    def queued(self) -> tuple[str, ...]:
        with self._commands.mutex:
            return tuple(command.line for command in self._commands.queue if command.line)

    def start(self, tell: Tell) -> None:
        self._tell = tell
        self._thread.start()

    def type_line(self, text: str) -> None:
        if not self._state.is_cancelled:
            self._commands.put(_Command(lambda messages: messages.line(text), text))
        elif text.split()[:1] == [Verb.RESTART]:
            self._again.set()
        else:
            self._tell(Said(f"{_CANCELLED}: type `restart` to start the rank", "error"))

    def choose_frame(self, by: int) -> None:
        self._commands.put(_Command(lambda messages: messages.choose_frame(by)))

    def pause(self) -> None:
        """What was typed ahead is dropped; the rank stops at its next collective; a start is given up once the stage
        that lasts is done, which is said at once."""
        self._drop()
        if self._debugger is not None:
            self._debugger.interrupt()
        elif self._state.phase is Phase.STARTING and not self._cancelled.is_set():
            self._cancelled.set()
            self._tell(StateChanged(replace(self._state, doing=f"cancelling: {self._state.doing}")))

    def _drop(self) -> None:
        dropped = []
        with suppress(queue.Empty):
            while True:
                dropped.append(self._commands.get_nowait().line)
        if lines := [line for line in dropped if line]:
            self._tell(Said(f"dropped: {', '.join(lines)}", "event"))

    def close(self) -> None:
        self._closing.set()
        if self._debugger is not None:  # out of whatever is being waited for
            self._debugger.interrupt()
            self._debugger.interrupt()

    def wait(self, bound_s: float) -> bool:
        """Until everything is cleaned up; False where that takes longer."""
        if self._thread.ident is not None:
            self._thread.join(bound_s)
        return not self._thread.is_alive()

    def _run(self) -> None:
        try:
            while not self._has_served():
                self._wait_to_start()
        except _Cancelled:
            self._lost(_CANCELLED)
        except PrismError as error:
            self._fail(error)
        except Exception as error:  # a defect here must not leave a screen that waits for ever
            self._fail(Defect(f"{type(error).__name__}: {error}", hint="report this: it is a bug in prismdbg"))
        finally:
            self._tell(LiveEnded())

    def _has_served(self) -> bool:
        """False where the start was cancelled."""
        try:
            self._progress("starting the replay")
            with self._opens(self._progress) as place:
                self._serve(place)
        except _Cancelled:
            if self._closing.is_set():
                raise
            return False
        return True

    def _wait_to_start(self) -> None:
        """Until it is asked for again."""
        self._drop()
        self._state = replace(self._state, is_cancelled=True)
        self._lost(_CANCELLED)
        while not self._again.wait(LOOK_S):
            if self._closing.is_set():
                raise _Cancelled("cancelled")
        self._cancelled.clear()
        self._again.clear()
        self._state = State(phase=Phase.STARTING, since_s=time.monotonic(), doing="starting the replay")

    def _progress(self, text: str) -> None:
        if self._closing.is_set() or (self._messages is None and self._cancelled.is_set()):
            raise _Cancelled("cancelled")
        if self._messages is None:
            self._state = replace(self._state, doing=text)
            self._tell(StateChanged(self._state))
        self._tell(Said(text, "event"))

    def _fail(self, error: PrismError) -> None:
        self._lost(str(error))
        self._tell(Failed(str(error), error.hint, fatal=error))

    def _lost(self, why: str) -> None:
        self._state = replace(self._state, phase=Phase.LOST, lost_because=why)
        self._tell(StateChanged(self._state))

    def _serve(self, place: Place) -> None:
        state = replace(
            self._state, phase=Phase.RUNNING, runtime=place.runtime, first_record=place.first_record, doing=""
        )
        debugger = self._debugs(place, lambda notice: messages.notice(notice))
        messages = DebuggerMessages(
            debugger, self._tell, state, lambda: place.checkpoints, lambda: self._traced(debugger)
        )
        self._messages, self._debugger = messages, debugger
        if self._cancelled.is_set():  # while its last stage lasted, of which nothing more is said
            self._messages = self._debugger = None
            raise _Cancelled("cancelled")
        tail = OutputTail(place.output)
        place.on_cut = partial(self._cut, tail)
        watched = threading.Thread(target=self._follow, args=(tail,), name="prismdbg-output", daemon=True)
        watched.start()
        try:
            messages.begin()
            for line in self._first_lines:
                messages.line(line, is_kept=True)
            while not self._closing.is_set():
                self._turn(debugger, messages)
        finally:
            self._closing.set()
            debugger.end()
            watched.join(LOOK_S * 20)

    def _turn(self, debugger: Debugger, messages: DebuggerMessages) -> None:
        """One command, or a short wait for what the rank tells: also a stopped rank may die."""
        try:
            command = self._commands.get_nowait() if messages.is_alive else self._commands.get(timeout=LOOK_S)
        except queue.Empty:
            if messages.is_alive:
                debugger.poll(LOOK_S)
                messages.noticed()
            return
        command.carry_out(messages)

    def _cut(self, tail: OutputTail, length_bytes: int) -> None:
        self._tell(tail.cut(length_bytes))

    def _follow(self, tail: OutputTail) -> None:
        """The rank prints while the debugger waits for it."""
        while not self._closing.wait(LOOK_S):
            for message in tail.news():
                self._tell(message)
