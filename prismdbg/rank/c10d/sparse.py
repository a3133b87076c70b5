"""Sparse tensors (DDP's gradients of `Embedding(sparse=True)`) as dense parts: what is hashed, kept and put back."""

from __future__ import annotations

from collections.abc import Iterable

import torch

from prismdbg.errors import CapsuleError


def dense_parts(tensors: Iterable[torch.Tensor]) -> list[torch.Tensor]:
    """Dense tensors as they are; a sparse one as its number of values, its indices and its values."""
    parts: list[torch.Tensor] = []
    for tensor in tensors:
        if tensor.layout is torch.sparse_coo:
            tensor = tensor.detach()
            parts += [torch.tensor([tensor._nnz()], device="cpu"), tensor._indices(), tensor._values()]
        else:
            parts.append(tensor)
    return parts


def restore(target: torch.Tensor, data: memoryview) -> int:
    """Fills a sparse tensor from what its dense parts were; returns the bytes used."""
    count = int.from_bytes(data[:8], "little")
    rows, inner = target.sparse_dim(), tuple(target.shape[target.sparse_dim() :])
    index_bytes = 8 * rows * count
    value_bytes = count * torch.Size(inner).numel() * target.element_size()
    used: int = 8 + index_bytes + value_bytes
    if used > len(data):
        raise CapsuleError(f"the log has {len(data)} bytes for a sparse tensor of {count} values")
    indices = _tensor(data[8 : 8 + index_bytes], torch.int64, (rows, count))
    values = _tensor(data[8 + index_bytes : used], target.dtype, (count, *inner))
    with torch.no_grad():  # no detach(): what is put into a detached sparse tensor stays there
        target.copy_(
            torch.sparse_coo_tensor(indices, values, target.shape, device=indices.device, check_invariants=False)
        )
    return used


def _tensor(data: memoryview, dtype: torch.dtype, shape: tuple[int, ...]) -> torch.Tensor:
    if not len(data):
        return torch.empty(shape, dtype=dtype, device="cpu")
    return torch.frombuffer(bytearray(data), dtype=dtype).view(shape)
