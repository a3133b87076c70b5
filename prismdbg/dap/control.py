"""What the thread that reads requests may do to the one that carries them out: stop the rank, and end everything."""

from __future__ import annotations

import threading
from collections.abc import Callable

from prismdbg.debugger.debugger import Debugger
from prismdbg.session.answers import Phase

CLOSE_BOUND_S = 20.0


class Control:
    """`kill` ends this process in a way that cleans up; it is called where the end of a session takes too long."""

    def __init__(self, kill: Callable[[], None], close_bound_s: float = CLOSE_BOUND_S) -> None:
        self._kill, self._close_bound_s = kill, close_bound_s
        self._lock = threading.Lock()
        self._debugger: Debugger | None = None
        self._waiting = 0  # requests that are to move the rank and are not done
        self._starting = self._moving = False
        self._stop_next = False
        self._closing = threading.Event()
        self._watch: threading.Timer | None = None

    @property
    def is_closing(self) -> bool:
        return self._closing.is_set()

    def starts(self) -> None:
        """A replay is started, until it stands."""
        with self._lock:
            self._starting = True

    def drives(self, debugger: Debugger) -> None:
        with self._lock:
            self._debugger = debugger
            debugger.on_begin = self._begins

    def expects_move(self) -> None:
        """A request that moves the rank was read."""
        with self._lock:
            self._waiting += 1

    def done_with_move(self) -> None:
        """It was carried out, or refused."""
        with self._lock:
            self._waiting -= 1
            self._stop_next = False

    def stands(self) -> None:
        with self._lock:
            self._starting = self._moving = False

    def pause(self) -> bool:
        """Whether there is anything to stop: the rank runs, or is about to."""
        with self._lock:
            runs = self._debugger is not None and self._debugger.session.phase is Phase.RUNNING
            if self._debugger is not None and (self._moving or runs):
                self._debugger.interrupt()
            elif self._waiting:
                self._stop_next = True
            else:
                return False
            return True

    def cancel(self) -> None:
        """What takes long is given up: the start of a replay, and the session with it, or what moves the rank."""
        if self._starting:
            self.close()
        else:
            self.pause()

    def close(self) -> None:
        """Whatever is waited for is given up."""
        with self._lock:
            if self._closing.is_set():
                return
            self._closing.set()
            self._watch = threading.Timer(self._close_bound_s, self._kill)
            self._watch.daemon = True
            self._watch.start()
            self._give_up()

    def closed(self) -> None:
        """Everything is cleaned up."""
        if self._watch is not None:
            self._watch.cancel()

    def _begins(self) -> None:
        """From here on an interrupt is of what the debugger carries out."""
        with self._lock:
            self._moving = True
            if self._debugger is not None and self._stop_next:
                self._stop_next = False
                self._debugger.interrupt()
            if self._closing.is_set():
                self._give_up()

    def _give_up(self) -> None:
        if self._debugger is not None:  # once: it stops; twice: nobody waits for it
            self._debugger.interrupt()
            self._debugger.interrupt()
