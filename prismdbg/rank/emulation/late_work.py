"""A receive that was posted before its value is known: whoever waits for it waits for the rank that sends it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import torch.distributed as dist


class LateWork(dist.Work):  # type: ignore[misc]
    """Fills its outputs when it is waited for, or asked whether it is there."""

    def __init__(self, fill: Callable[[], None]) -> None:
        super().__init__()
        self._fill: Callable[[], None] | None = fill
        _alive.add(self)  # what C++ makes of it does not keep this half alive

    def wait(self, timeout: timedelta | None = None) -> bool:
        if self._fill is not None:
            fill, self._fill = self._fill, None
            fill()
        _alive.discard(self)
        return True

    def is_completed(self) -> bool:
        return self.wait()


_alive: set[LateWork] = set()
