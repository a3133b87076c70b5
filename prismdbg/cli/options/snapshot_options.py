"""What `prismdbg memory` can answer from a snapshot of torch's allocator, which knows no job and no collectives."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from prismdbg.errors import UsageError
from prismdbg.importers.memory_snapshot import read_snapshot
from prismdbg.memory.grouping import By
from prismdbg.memory.trace import MemoryTrace, from_bytes
from prismdbg.render import console

_UNKNOWN = {By.AGE: "steps", By.MODULE: "modules"}


def snapshot_trace(path: Path, given: Mapping[str, object]) -> MemoryTrace:
    """`given`: options that need a run or a capsule, with their values."""
    for option, value in given.items():
        if value:
            raise UsageError(
                f"{option} needs a RUN or a CAPSULE, and {path} is a snapshot of torch's allocator",
                hint=f"leave {option} out",
            )
    trace = from_bytes(*read_snapshot(path))
    if bool(trace.op.any()):
        console.say("a snapshot of torch's allocator: 0.0.N is the N-th entry of the device's history")
    else:
        console.say("a snapshot of torch's allocator without a history: only what it held at that time is known")
    return trace


def grouping_of(trace: MemoryTrace, asked: str | None) -> By:
    """By operator, or by stack where the snapshot has none and nothing else was asked for."""
    by = By(asked) if asked is not None else By.OP
    if by in _UNKNOWN:
        raise UsageError(f"--by {by}: a snapshot of torch's allocator has no {_UNKNOWN[by]}", hint="use --by stack")
    if by is By.OP and not any(trace.site_at(number).op for number in np.unique(trace.site).tolist()):
        if asked is not None:
            raise UsageError(
                "--by op: the snapshot has no operators, because its stacks have no C++ frames",
                hint='use --by stack, or record with torch.cuda.memory._record_memory_history(stacks="all")',
            )
        return By.STACK
    return by
