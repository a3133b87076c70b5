"""CUDA's allocations: followed from when the program initializes CUDA, which the tracer never does by itself.

torch's caching allocator has one part a device, and these are made when CUDA is initialized: nothing can be attached
earlier. `torch.cuda` calls what waits for it right after that, before the program gets its first block.
"""

from __future__ import annotations

import sys
from typing import Any

import torch

from prismdbg.rank.native import cuda_headers

_untraced = ""  # why CUDA's allocations are not traced, of the trace that was armed last


def follow(native: Any) -> None:
    """At once where CUDA is initialized, else as soon as it is. Does nothing where torch has no CUDA."""
    global _untraced
    _untraced = missing(native)
    if torch.version.cuda is not None and not _untraced:
        torch.cuda._lazy_call(lambda: _attach(native))


def missing(native: Any) -> str:
    """Empty, or why this extension cannot trace the CUDA allocations that this torch can make."""
    if torch.version.cuda is None or hasattr(native, "trace_follow_cuda"):
        return ""
    why = cuda_headers.missing() or "its headers were missing then or did not compile"
    return f"the native recorder was built without CUDA: {why}; `prismdbg setup` builds it again"


def untraced() -> str:
    """Empty, or why CUDA's allocations are in no trace."""
    return _untraced


def cap(cap_bytes: int) -> None:
    """What torch's allocator may take of each device, once CUDA is initialized; 0: all. It is torch's own limit: it
    counts what the allocator reserves, and what it raises is torch's."""
    if torch.version.cuda is not None:
        torch.cuda._lazy_call(lambda: _limit(cap_bytes))


def _attach(native: Any) -> None:
    global _untraced
    if not native.trace_stats()["on"]:
        return
    try:
        native.trace_follow_cuda()
    except Exception as error:  # another allocator than torch's caching one, say
        _untraced = _first_line(error)


def _limit(cap_bytes: int) -> None:
    """What fails here does not fail the program's own initialization of CUDA."""
    try:
        for device in range(torch.cuda.device_count()):
            total_bytes = torch.cuda.get_device_properties(device).total_memory
            fraction = min(cap_bytes / total_bytes, 1.0) if cap_bytes else 1.0
            torch.cuda.set_per_process_memory_fraction(fraction, device)
    except Exception as error:
        print(f"prismdbg: --memory-cap does not hold on GPUs: {_first_line(error)}", file=sys.stderr)


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]
