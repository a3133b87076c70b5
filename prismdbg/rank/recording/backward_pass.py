"""The line of a collective in the backward pass: on a GPU, torch runs that pass on threads of its own, which have no
Python frames. The line that began it is the one that a reader looks for.
"""

from __future__ import annotations

import functools
import os
import threading
from collections.abc import Callable
from typing import Any

import torch


class BackwardPass:
    """tell(True): the calling thread begins one; tell(False): it is over, or it is not clear whose one is meant."""

    def __init__(self, tell: Callable[[bool], None]) -> None:
        self._tell = tell
        self._lock = threading.RLock()  # a signal's handler may begin one, too
        self._running = 0
        self._thread = 0

    def install(self) -> None:
        """Follows `backward` and `grad` of torch, both of which call this one function."""
        run = getattr(torch.autograd, "_engine_run_backward", None)
        if run is None:  # of another torch: such collectives have no line
            return

        @functools.wraps(run)
        def followed(*args: Any, **kwargs: Any) -> Any:
            try:  # an interrupt may come anywhere
                self._begin()
                return run(*args, **kwargs)
            finally:
                self._end()

        torch.autograd._engine_run_backward = followed
        os.register_at_fork(after_in_child=self._forget)

    def _forget(self) -> None:
        """In a child: no other thread of the parent runs here, nor holds the lock."""
        self._lock = threading.RLock()
        self._running = 0

    def _begin(self) -> None:
        with self._lock:
            self._running += 1
            if self._running == 1:
                self._thread = threading.get_ident()
                self._tell(True)
            elif self._thread != threading.get_ident():
                self._tell(False)

    def _end(self) -> None:
        with self._lock:
            self._running = max(self._running - 1, 0)
            if self._running == 0:
                self._tell(False)
