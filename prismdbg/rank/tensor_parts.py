"""The tensors that are looked at: this rank's part of a sharded one, and pieces of bounded size to compute on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

CHUNK = 1 << 22


def local(value: Any) -> Any:
    """A sharded tensor's part on this rank; anything else as it is. Issues no collective."""
    if isinstance(value, torch.Tensor) and hasattr(value, "to_local"):
        return value.to_local()
    return value


def countable(tensor: torch.Tensor) -> bool:
    """Whether its elements can be read: not on the meta device, strided, and its storage not given back (FSDP)."""
    if tensor.device.type == "meta" or tensor.layout is not torch.strided or tensor.is_quantized:
        return False
    return tensor.numel() == 0 or bool(tensor.untyped_storage().nbytes())


def chunks(tensor: torch.Tensor) -> Iterator[torch.Tensor]:
    """Flat pieces in logical order, each of about `CHUNK` elements, none a copy of more than that."""
    tensor = tensor.detach()
    if tensor.numel() <= CHUNK or tensor.is_contiguous():
        yield from tensor.reshape(-1).split(CHUNK)
        return
    rows = tensor.shape[0]
    step = max(1, CHUNK * rows // tensor.numel())
    for start in range(0, rows, step):
        part = tensor.narrow(0, start, min(step, rows - start))
        yield from chunks(part[0] if step == 1 else part)


def in_numbers(chunk: torch.Tensor) -> torch.Tensor:
    """As double precision; of complex elements the magnitude."""
    if chunk.is_complex():
        return chunk.to(torch.complex128).abs()
    return chunk.to(torch.float64)
