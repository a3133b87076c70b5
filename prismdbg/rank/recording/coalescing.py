"""Tells the recorder of calls that a backend issues together: what they receive is there when all have ended."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch.distributed as dist

from prismdbg.rank.recording.recorder import Recorder


def install(recorder: Recorder) -> None:
    """From now on. A backend that cannot do it raises at the start, and nothing is told."""
    kind: Any = dist.ProcessGroup
    start, end = kind._start_coalescing, kind._end_coalescing

    def start_coalescing(group: Any, *args: Any, **named: Any) -> None:
        start(group, *args, **named)
        recorder.start_coalescing(group)

    def end_coalescing(group: Any, *args: Any, **named: Any) -> Any:
        return recorder.end_coalescing(group, partial(end, group, *args, **named))

    kind._start_coalescing, kind._end_coalescing = start_coalescing, end_coalescing
