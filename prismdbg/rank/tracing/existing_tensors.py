"""The tensors that are there when a trace begins, as far as Python reaches them; and a bound for the others."""

from __future__ import annotations

import contextlib
import ctypes
import gc
from collections.abc import Iterator
from typing import Any, ClassVar

import torch

from prismdbg.rank.program.isolation import unseen

_PROBE_BYTES = 64 << 20  # large enough to be mapped and unmapped by itself: the heap stays as it is
_MALLOC_INFO = "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost"  # as glibc has them


def live_tensors() -> list[torch.Tensor]:
    """Plain ones: what is inside a subclass (a sharded or quantized tensor) is a tensor of its own."""
    found: list[torch.Tensor] = []
    for one in gc.get_objects():
        if issubclass(type(one), torch.Tensor):
            with contextlib.suppress(Exception):  # half-made ones, and those that stand for others
                found += [tensor for tensor in _with_gradient(one) if _has_bytes(tensor)]
    return found


def _with_gradient(tensor: Any) -> Iterator[Any]:
    """A gradient that Python never looked at is known to its parameter alone."""
    yield tensor
    if tensor.is_leaf and tensor.grad is not None:
        yield tensor.grad


def _has_bytes(tensor: torch.Tensor) -> bool:
    return tensor.device.type == "cpu" and tensor.layout is torch.strided and tensor.untyped_storage().data_ptr() != 0


def in_use_bytes() -> int | None:
    """What the process holds of the C library's memory: never less than what all of torch's CPU blocks take together,
    those among them that C++ alone holds. None where torch gets its blocks elsewhere (jemalloc, say)."""
    before = _malloc_bytes()
    try:
        with unseen():
            probe = torch.empty(_PROBE_BYTES, dtype=torch.uint8, device="cpu")
            counted = _malloc_bytes()
            del probe
    except RuntimeError:  # no room
        return None
    return before if before is not None and counted is not None and counted - before >= _PROBE_BYTES else None


class _MallocInfo(ctypes.Structure):
    """glibc's `struct mallinfo2`, all in bytes or numbers."""

    _fields_: ClassVar = [(name, ctypes.c_size_t) for name in _MALLOC_INFO.split()]


def _malloc_bytes() -> int | None:
    ask = getattr(ctypes.CDLL(None), "mallinfo2", None)  # glibc 2.33 or newer
    if ask is None:
        return None
    ask.restype = _MallocInfo
    found = ask()
    return int(found.uordblks) + int(found.hblkhd)
