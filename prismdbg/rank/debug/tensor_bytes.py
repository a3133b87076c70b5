"""The bytes of a tensor's elements, as they would lie in one array in order."""

from __future__ import annotations

import base64
import ctypes
from typing import Any

import torch

from prismdbg.errors import UsageError
from prismdbg.rank.debug.tensor_summary import dtype_name
from prismdbg.rank.program.tensor_parts import chunks, countable

MOST_BYTES = 1 << 20


def read_bytes(part: torch.Tensor, offset: int, count: int) -> dict[str, Any]:
    """`count` bytes from `offset` on, at most `MOST_BYTES`; fewer where the elements end. address: of the first of them
    in the program's memory, where the elements lie in order, else 0."""
    if not countable(part):
        raise UsageError(
            "its elements cannot be read: it is sparse, quantized, on the meta device, or its storage was freed",
            hint="name a dense tensor on a CPU or a GPU",
        )
    total = part.numel() * part.element_size()
    first, last = min(offset, total), min(offset + min(count, MOST_BYTES), total)
    data = b"".join(_pieces(part, first, last)) if first < last else b""
    address = part.data_ptr() + first if part.is_contiguous() and part.numel() else 0
    return {
        "data": base64.b64encode(data).decode(), "count": len(data), "bytes": total, "address": address,
        "dtype": dtype_name(part), "shape": list(part.shape),
    }  # fmt: skip


def _pieces(part: torch.Tensor, first: int, last: int) -> list[bytes]:
    size, began, found = part.element_size(), 0, []
    for chunk in chunks(part):
        ended = began + chunk.numel() * size
        low, high = max(first, began), min(last, ended)
        if low < high:
            elements = chunk[(low - began) // size : -(-(high - began) // size)]
            skipped = (low - began) % size
            found.append(_memory(elements)[skipped : skipped + high - low])
        if ended >= last:
            break
        began = ended
    return found


def _memory(elements: torch.Tensor) -> bytes:
    held = elements.to("cpu").resolve_conj().resolve_neg().contiguous()
    return ctypes.string_at(held.data_ptr(), held.numel() * held.element_size())
