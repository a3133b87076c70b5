"""A 64-bit fingerprint of tensors' bytes that knows order, NaN and length; the native recorder computes the same.

Per tensor: its contiguous bytes, zero-padded, as little-endian 64-bit words in blocks of 4096. A block hashes to the
sum of word[i] * WEIGHTS[i]; blocks are combined by Horner's rule; the length is mixed in. All modulo 2**64.
The mixing constants are those of splitmix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014).
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence

import torch

from prismdbg.model.fingerprint_arithmetic import GOLDEN, LENGTH, MASK, as_signed, mix64

BLOCK_WORDS = 4096


# in memory that torch did not allocate: what is ours does not count as the program's
WEIGHTS = torch.frombuffer(
    array("q", (as_signed(mix64(((i + 1) * GOLDEN) & MASK) | 1) for i in range(BLOCK_WORDS))), dtype=torch.int64
)


def as_bytes(tensor: torch.Tensor) -> memoryview:
    """The tensor's bytes in logical order, in memory of our own: the program may still resize its storage."""
    flat = _flat_bytes(tensor)
    if flat.numel() == 0:
        return memoryview(b"")
    return memoryview(flat.clone().numpy())


def _flat_bytes(tensor: torch.Tensor) -> torch.Tensor:
    return host_elements(tensor).view(-1).view(torch.uint8)


def host_elements(tensor: torch.Tensor) -> torch.Tensor:
    """Contiguous, in the host's memory, complex numbers as pairs, a quantized tensor as its integers."""
    tensor = tensor.detach()
    if hasattr(tensor, "to_local"):
        tensor = tensor.to_local()
    if tensor.is_quantized:
        tensor = tensor.int_repr()
    tensor = tensor.resolve_conj().resolve_neg()
    if tensor.is_complex():
        tensor = torch.view_as_real(tensor)
    return tensor.to("cpu").contiguous()


def of_tensor(tensor: torch.Tensor) -> int:
    data = _flat_bytes(tensor)
    size = data.numel()
    padded = -(-size // (8 * BLOCK_WORDS)) * (8 * BLOCK_WORDS)
    if padded != size or data.data_ptr() % 8:
        whole = torch.zeros(padded, dtype=torch.uint8, device="cpu")
        whole[:size] = data
        data = whole
    value = 0
    if padded:
        sums = (data.view(torch.int64).view(-1, BLOCK_WORDS) * WEIGHTS).sum(dim=1)
        for block in sums.tolist():
            value = (value * GOLDEN + block) & MASK
    return mix64(value ^ ((size * LENGTH) & MASK))


def of(tensors: Sequence[torch.Tensor]) -> int:
    """The fingerprint of several tensors in order."""
    value = 0
    with torch.no_grad():
        for tensor in tensors:
            value = mix64((value * GOLDEN + of_tensor(tensor)) & MASK)
    return value


def nonfinite(tensors: Sequence[torch.Tensor]) -> bool:
    """Whether any element is NaN or infinite. A sum first: it is not finite if any element is not."""
    with torch.no_grad():
        for tensor in tensors:
            if not (tensor.is_floating_point() or tensor.is_complex()) or tensor.numel() == 0:
                continue
            value = tensor.detach()
            if value.element_size() == 1:
                value = value.to(torch.float32)
            if not torch.isfinite(value.sum()) and not torch.isfinite(value).all():
                return True
    return False
