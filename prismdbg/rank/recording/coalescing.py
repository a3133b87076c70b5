"""Tells the native recorder of calls that a backend issues together: what they receive is there when all have ended."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch.distributed as dist


def install(native: Any) -> None:
    """From now on. A backend that cannot do it raises at the start, and nothing is told."""
    group: Any = dist.ProcessGroup
    start, end = group._start_coalescing, group._end_coalescing

    def start_coalescing(*args: Any, **named: Any) -> None:
        start(*args, **named)
        native.start_coalescing()

    def end_coalescing(*args: Any, **named: Any) -> Any:
        return native.end_coalescing(partial(end, *args, **named))

    group._start_coalescing, group._end_coalescing = start_coalescing, end_coalescing
