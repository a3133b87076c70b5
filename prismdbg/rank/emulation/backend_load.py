"""Takes from the processor what transfers under way take from it, as a backend's thread on the rank's core does.

One transfer after another; each is over when its time has come and its work is done. The work is copying, in pieces
long enough to leave the GIL to the program.
"""

from __future__ import annotations

import ctypes
import queue
import threading
import time
from collections.abc import Callable

from prismdbg.rank.emulation.clocks import WallClock
from prismdbg.rank.emulation.pace import Due
from prismdbg.rank.program.isolation import unseen

PIECE_BYTES = 1 << 20


class Carrier:
    def __init__(self, clock: WallClock) -> None:
        self._clock = clock
        self._waiting: queue.SimpleQueue[tuple[Due, Callable[[], None] | None, Callable[[], None]]] = (
            queue.SimpleQueue()
        )
        self._thread: threading.Thread | None = None

    def carry(self, due: Due, fill: Callable[[], None] | None, done: Callable[[], None]) -> None:
        """Both are called from a thread of its own; `fill` is a part of the work."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="prismdbg-carrier", daemon=True)
            self._thread.start()
        self._waiting.put((due, fill, done))

    def _run(self) -> None:
        piece, target = (ctypes.create_string_buffer(PIECE_BYTES) for _ in range(2))  # not of torch's memory
        while True:
            due, fill, done = self._waiting.get()
            self._sleep_until(due.began_ns)
            ends_ns = time.thread_time_ns() + due.busy_ns
            if fill is not None:
                with unseen():
                    fill()
            while time.thread_time_ns() < ends_ns:
                ctypes.memmove(target, piece, PIECE_BYTES)
            self._sleep_until(due.ends_ns)
            done()
            del due, fill, done  # the tensors go when the program lets them go

    def _sleep_until(self, when_ns: int) -> None:
        while (left_ns := when_ns - self._clock.now_ns()) > 0:
            time.sleep(left_ns / 1e9)
