"""The line of a collective in the backward pass: on a GPU, torch runs that pass on threads of its own, which have no
Python frames. The line that began it is the one that a reader looks for.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import Any

import torch


class BackwardPass:
    """tell(True): the calling thread begins one; tell(False): it is over, or it is not clear whose one is meant."""

    def __init__(self, tell: Callable[[bool], None]) -> None:
        self._tell = tell
        self._lock = threading.Lock()
        self._running = 0
        self._thread = 0

    def install(self) -> None:
        """Follows `backward` and `grad` of torch, both of which call this one function."""
        run = getattr(torch.autograd, "_engine_run_backward", None)
        if run is None:  # of another torch: such collectives have no line
            return

        @functools.wraps(run)
        def followed(*args: Any, **kwargs: Any) -> Any:
            self._begin()
            try:
                return run(*args, **kwargs)
            finally:
                self._end()

        torch.autograd._engine_run_backward = followed

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
            self._running -= 1
            if self._running == 0:
                self._tell(False)
