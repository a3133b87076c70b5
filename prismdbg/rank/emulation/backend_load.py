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
Told = Callable[[], None]


class Carrier:
    def __init__(self, clock: WallClock) -> None:
        self._clock = clock
        self._waiting: queue.SimpleQueue[tuple[Due, Callable[[], None] | None, Told, Told]] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    def carry(self, due: Due, fill: Callable[[], None] | None, worked: Told, done: Told) -> None:
        """All are called from a thread of its own. `fill`: a part of the work. worked: who waits for it then may wait
        for its end alone, and is woken once; done: at its end, which this thread may come to late."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="prismdbg-carrier", daemon=True)
            self._thread.start()
        self._waiting.put((due, fill, worked, done))

    def _run(self) -> None:
        piece, target = (ctypes.create_string_buffer(PIECE_BYTES) for _ in range(2))  # not of torch's memory
        while True:
            due, fill, worked, done = self._waiting.get()
            self._sleep_until(due.began_ns)
            ends_ns = time.thread_time_ns() + due.busy_ns
            if fill is not None:
                with unseen():
                    fill()
            while time.thread_time_ns() < ends_ns:
                ctypes.memmove(target, piece, PIECE_BYTES)
            worked()
            self._sleep_until(due.ends_ns)
            done()
            del due, fill, worked, done  # the tensors go when the program lets them go

    def _sleep_until(self, when_ns: int) -> None:
        while (left_ns := when_ns - self._clock.now_ns()) > 0:
            time.sleep(left_ns / 1e9)
