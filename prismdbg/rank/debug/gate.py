"""Where a replayed rank stops. The stopped thread waits here and runs what clients ask for in its own context."""

from __future__ import annotations

import queue
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from enum import StrEnum
from types import FrameType, TracebackType
from typing import Any

from prismdbg.errors import UsageError, WaitTimeout
from prismdbg.model.breakpoints import StopReason
from prismdbg.model.moment import Moment
from prismdbg.protocol.hello import RANK_RUNS
from prismdbg.protocol.wire import Message

ASK_BOUND_S = 60.0
MAX_NOTED = 1000


class BreakpointMode(StrEnum):
    """What becomes of the client's stops while the rank runs. OFF: not even an exception stops it."""

    OFF = "off"
    APPLY = "apply"
    NOTE = "note"
    IGNORE = "ignore"


@dataclass(slots=True)
class Stop:
    """What the stopped thread is at: everything an inspection may need. `told` is an event of its own, published when
    the thread stands: a client may look at once. `answered`: the peers' answer is there. `stops`: numbers of those
    that were hit. sent: the program's own tensors, of which `input` may be copies of before the answer. trace: of the
    exception with which it stands at `frame`."""

    reason: str
    moment: Moment
    event: dict[str, Any]
    frame: FrameType | None
    names: dict[str, Any]
    told: dict[str, Any] | None = None
    answered: bool = False
    stops: tuple[int, ...] = ()
    sent: tuple[Any, ...] = ()
    trace: TracebackType | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Finish:
    """Where a module's call, or else the step, is over."""

    module: str
    step: int


@dataclass(slots=True, kw_only=True)
class Aim:
    """Where the rank is to stop next. Nothing given: at the end. `events`: stops between collectives, see `events`."""

    until: Moment | None = None
    count: int = 0
    stops: BreakpointMode = BreakpointMode.OFF
    finish: Finish | None = None
    events: dict[str, Any] | None = None
    pause_at_s: float | None = None
    noted: deque[dict[str, Any]] = field(default_factory=lambda: deque(maxlen=MAX_NOTED))

    @classmethod
    def from_message(cls, message: Message) -> Aim:
        until, finish = message.get("until"), message.get("finish")
        return cls(
            until=Moment.parse(str(until)) if until else None,
            count=int(message.get("count", 0)),
            stops=BreakpointMode(message.get("stops", BreakpointMode.OFF)),
            finish=Finish(module=str(finish["module"]), step=int(finish["step"])) if finish else None,
            events=message.get("events"),
            pause_at_s=_pause_at_s(message),
        )


def _pause_at_s(message: Message) -> float | None:
    after_s = message.get("pause_after_s")
    return None if after_s is None else time.monotonic() + float(after_s)


class Gate:
    """One thread is stopped at a time. `publish` tells the clients; `resume` lets it go on.

    on_aim: told of every new aim, before the rank runs. describe: what a stop is told with besides.
    """

    def __init__(self, publish: Callable[..., None]) -> None:
        self._publish = publish
        self._one = threading.RLock()
        self._work: queue.SimpleQueue[tuple[Callable[[Stop], Any], Future[Any]] | None] = queue.SimpleQueue()
        self._held = Aim()
        self._pause = False
        self.aim = Aim()
        self.number = 0  # of stops so far: a client that is told of a stop twice knows that it is one
        self.current: Stop | None = None
        self.on_aim: Callable[[Aim], None] = lambda _: None
        self.describe: Callable[[Stop], dict[str, Any]] = lambda _: {}
        self.told: dict[str, Any] = {}

    def reason_at(self, moment: Moment) -> str:
        """The reason to stop at this collective, or nothing."""
        aim = self.aim
        if self._pause:
            return StopReason.PAUSED
        if aim.until is not None and moment >= aim.until:
            return StopReason.UNTIL
        if aim.events is not None and "count" in aim.events:  # a collective is an event, too
            return StopReason.STEP
        if aim.count:
            aim.count -= 1
            if not aim.count:
                return StopReason.NEXT
        if aim.pause_at_s is not None and time.monotonic() >= aim.pause_at_s:
            return StopReason.SPACING
        return ""

    def stop(self, stop: Stop) -> None:
        """Blocks the calling thread; runs asked work in it; returns when resumed."""
        with self._one:
            self._pause = False
            self._held, self.aim = self.aim, Aim(stops=self.aim.stops)
            self.number += 1
            self.current = stop
            if stop.told is not None:
                self._publish(**stop.told)
            self.told = self._tell(stop)
            self._publish("stopped", reason=stop.reason, **self.told)
            while (item := self._work.get()) is not None:
                action, future = item
                try:
                    future.set_result(action(stop))
                except BaseException as error:  # whatever an expression raises belongs to whoever asked
                    future.set_exception(error)
            self.current = None

    def _tell(self, stop: Stop) -> dict[str, Any]:
        return {
            "number": self.number,
            "moment": str(stop.moment),
            "collective": stop.event,
            "answered": stop.answered,
            "stops": list(stop.stops),
            "hits": list(self._held.noted),
            **self.describe(stop),
        }

    def ask(self, action: Callable[[Stop], Any]) -> Any:
        """Runs `action(stop)` in the stopped thread and gives its result."""
        if self.current is None:
            raise UsageError(RANK_RUNS, hint="pause it, or wait until it stops")
        future: Future[Any] = Future()
        self._work.put((action, future))
        try:
            return future.result(ASK_BOUND_S)
        except TimeoutError:
            raise WaitTimeout(
                f"waited {ASK_BOUND_S:g} s for the stopped thread to answer",
                hint="ask again: the thread is busy in a long computation",
            ) from None

    def first_of_all(self, action: Callable[[], None]) -> None:
        """Runs `action` at the next stop, in the stopped thread, before what clients ask for."""
        self._work.put((lambda _: action(), Future()))

    def resume(self, message: Message) -> None:
        """Goes on as the message says, or, `continued`, as it was going before this stop."""
        if self.current is None:
            raise UsageError("the rank is running already", hint="wait until it stops, or pause it")
        self.take_aim(message)
        self._work.put(None)

    def take_aim(self, message: Message) -> None:
        if message.get("continued"):
            aim, aim.pause_at_s = self._held, _pause_at_s(message)
        else:
            aim = Aim.from_message(message)
        self.aim = aim
        self.on_aim(aim)

    def pause(self) -> None:
        self._pause = True

    def hit(self, number: int, moment: Moment, event: dict[str, Any], values: list[dict[str, Any]]) -> None:
        """A stop that only tells. values: those of its text."""
        self._publish("hit", moment=str(moment), stop=number, collective=event, values=values)
