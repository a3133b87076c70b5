"""Where a replayed rank stops. The stopped thread waits here and runs what clients ask for in its own context."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from types import FrameType
from typing import Any

from prismdbg.errors import UsageError, WaitTimeout
from prismdbg.model.moment import Moment

ASK_BOUND_S = 60.0


@dataclass(slots=True)
class Stop:
    """What the stopped thread is at: everything an inspection may need. `told` is an event of its own, published when
    the thread stands: a client may look at once."""

    reason: str
    moment: Moment
    event: dict[str, Any]
    frame: FrameType | None
    names: dict[str, Any]
    told: dict[str, Any] | None = None


class Gate:
    """One thread is stopped at a time. `publish` tells the clients; `resume` lets it go on."""

    def __init__(self, publish: Callable[..., None]) -> None:
        self._publish = publish
        self._one = threading.RLock()
        self._work: queue.SimpleQueue[tuple[Callable[[Stop], Any], Future[Any]] | None] = queue.SimpleQueue()
        self._until: Moment | None = None
        self._count = 0
        self._pause = False
        self.number = 0  # of stops so far: a client that is told of a stop twice knows that it is one
        self.current: Stop | None = None

    def should_stop(self, moment: Moment) -> str:
        """The reason to stop at this collective, or nothing."""
        if self._pause:
            return "paused"
        if self._until is not None and moment >= self._until:
            return "until"
        if self._count:
            self._count -= 1
            return "" if self._count else "next"
        return ""

    def stop(self, stop: Stop) -> None:
        """Blocks the calling thread; runs asked work in it; returns when resumed."""
        with self._one:
            self._pause, self._until, self._count = False, None, 0
            self.number += 1
            self.current = stop
            moment = str(stop.moment)
            if stop.told is not None:
                self._publish(**stop.told)
            self._publish("stopped", number=self.number, reason=stop.reason, moment=moment, collective=stop.event)
            while (item := self._work.get()) is not None:
                action, future = item
                try:
                    future.set_result(action(stop))
                except BaseException as error:  # whatever an expression raises belongs to whoever asked
                    future.set_exception(error)
            self.current = None

    def ask(self, action: Callable[[Stop], Any]) -> Any:
        """Runs `action(stop)` in the stopped thread and gives its result."""
        if self.current is None:
            raise UsageError("the rank is running", hint="pause it, or wait until it stops")
        future: Future[Any] = Future()
        self._work.put((action, future))
        try:
            return future.result(ASK_BOUND_S)
        except TimeoutError:
            raise WaitTimeout(f"waited {ASK_BOUND_S:g} s for the stopped thread to answer") from None

    def first_of_all(self, action: Callable[[], None]) -> None:
        """Runs `action` at the next stop, in the stopped thread, before what clients ask for."""
        self._work.put((lambda _: action(), Future()))

    def resume(self, until: Moment | None, count: int) -> None:
        """Goes on: to `until`, or for `count` collectives, or to the end where neither is given."""
        if self.current is None:
            raise UsageError("the rank is running already")
        self.aim(until, count)
        self._work.put(None)

    def aim(self, until: Moment | None, count: int) -> None:
        """Where the rank is to stop next."""
        self._until, self._count = until, count

    def pause(self) -> None:
        self._pause = True
