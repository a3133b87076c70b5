"""CUDA's allocations: followed from when the program initializes CUDA, which the tracer never does by itself.

torch's caching allocator has one part a device, and these are made when CUDA is initialized: nothing can be attached
earlier. `torch.cuda` calls what waits for it right after that, before the program gets its first block.
"""

from __future__ import annotations

import os
from typing import Any

import torch

from prismdbg.rank.native import cuda_headers
from prismdbg.rank.program.stderr import say

_is_limited = False
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
    """What torch's allocator may take of the rank's GPU, once CUDA is initialized; 0: all. It is torch's own limit: it
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
    """Of one GPU: to set it makes a context there, which takes memory of each GPU that is named. Where nothing was
    limited and nothing is to be, the program's own limit stays. What fails here does not fail the program's own
    initialization of CUDA."""
    global _is_limited
    if not cap_bytes and not _is_limited:
        return
    try:
        before, device = torch.cuda.current_device(), _own_device()
        total_bytes = torch.cuda.get_device_properties(device).total_memory
        torch.cuda.set_per_process_memory_fraction(min(cap_bytes / total_bytes, 1.0) if cap_bytes else 1.0, device)
        torch.cuda.set_device(before)  # torch goes there to set it
        _is_limited = bool(cap_bytes)
    except Exception as error:
        say(f"--memory-cap does not hold on GPUs: {_first_line(error)}")


def _own_device() -> int:
    """That of the rank, which the program has not named yet: the usual one, or the only one."""
    local = os.environ.get("LOCAL_RANK", "0")
    return int(local) % torch.cuda.device_count() if local.isdigit() else 0


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]
