"""The wall clock that an emulated rank lives by, waiting for a time of it, being called at one, and computing as
slowly as where others use the processor, too.
"""

from __future__ import annotations

import heapq
import threading
import time
from bisect import bisect_left
from collections.abc import Callable

_MILLION = 10**6
SPIN_NS = 80_000  # what a sleep may come too late by; spent looking at the clock


class WallClock:
    """CLOCK_MONOTONIC, less the time in which this rank stood because another one ran, and what recording took."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._stood_ns = 0
        self._stood: list[tuple[int, int]] | None = None  # until when, and how long by then

    def now_ns(self) -> int:
        return time.monotonic_ns() - self._stood_ns

    def leave_out(self, taken_ns: int) -> None:
        """The last so many nanoseconds."""
        with self._lock:
            self._stood_ns += taken_ns
            if self._stood is not None:
                self._stood.append((time.monotonic_ns(), self._stood_ns))

    def keep_past(self) -> None:
        """`at_ns` is asked from here on: that takes memory for each time that is left out."""
        with self._lock:
            if self._stood is None:
                self._stood = [(0, self._stood_ns)]

    def at_ns(self, monotonic_ns: int) -> int:
        """What it showed then, where that was after `keep_past`."""
        if self._stood is None:
            return monotonic_ns - self._stood_ns
        place = bisect_left(self._stood, (monotonic_ns, 0))
        stood_ns = self._stood[place - 1][1] if place else 0
        if place < len(self._stood):  # it may have been standing
            until_ns, in_all_ns = self._stood[place]
            stood_ns += max(monotonic_ns - (until_ns - (in_all_ns - stood_ns)), 0)
        return monotonic_ns - stood_ns

    def sleep_until(self, when_ns: int) -> None:
        """Precise to microseconds; the last `SPIN_NS` at most cost the processor. Without the GIL but for the end."""
        left_ns = when_ns - self.now_ns()
        if left_ns > SPIN_NS:
            time.sleep((left_ns - SPIN_NS) / 1e9)
        while self.now_ns() < when_ns:
            pass


class SharedProcessor:
    """The rank has a processor for itself, and is to compute as on one that others share: it is made to wait as long as
    its thread computed since it was last let go on, times the factor less one.
    """

    def __init__(self, clock: WallClock, slower_ppm: int) -> None:
        self._clock, self._extra_ppm = clock, slower_ppm - _MILLION
        self._own = threading.local()

    def catch_up(self) -> None:
        """A thread comes to a call, a wait, or the end of a step."""
        since_ns = getattr(self._own, "since_ns", None)
        if since_ns is not None and self._extra_ppm > 0:
            computed_ns = time.thread_time_ns() - since_ns
            self._clock.sleep_until(self._clock.now_ns() + computed_ns * self._extra_ppm // _MILLION)
        self.go_on()

    def go_on(self) -> None:
        """From here on the thread computes."""
        self._own.since_ns = time.thread_time_ns()


class Timer:
    """Calls back at a time of the clock, from a thread of its own that sleeps until then and never spins."""

    def __init__(self, clock: WallClock) -> None:
        self._clock = clock
        self._due: list[tuple[int, int, Callable[[], None]]] = []
        self._count = 0
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None

    def at(self, when_ns: int, call: Callable[[], None]) -> None:
        with self._changed:
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="prismdbg-timer", daemon=True)
                self._thread.start()
            self._count += 1
            heapq.heappush(self._due, (when_ns, self._count, call))
            if self._due[0][1] == self._count:
                self._changed.notify()

    def _run(self) -> None:
        while True:
            self._next()()

    def _next(self) -> Callable[[], None]:
        with self._changed:
            while True:
                if not self._due:
                    self._changed.wait()
                    continue
                left_ns = self._due[0][0] - self._clock.now_ns()
                if left_ns <= 0:
                    return heapq.heappop(self._due)[2]
                self._changed.wait(left_ns / 1e9)
