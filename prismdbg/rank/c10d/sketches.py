"""Sketches of what a rank sends (`model/sketch.py`); the native recorder computes the same, up to rounding.

The elements of each tensor are numbered in blocks of 512, blocks over all tensors. The signs of an element come from
bits of the fingerprint's weights: one by its place in the block, two by the number of the block.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterator, Sequence

import torch

from prismdbg.model.sketch import PROJECTIONS, Sketch
from prismdbg.rank.c10d.fingerprint import BLOCK_WORDS, WEIGHTS, host_elements

BLOCK = 512
_CHUNK = BLOCK << 11  # elements that are converted at once
_FLOATS = frozenset([torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.float8_e5m2])


def _signs(count: int, first_bit: int) -> torch.Tensor:
    """1 or -1 for each of the first numbers and each projection; in memory that torch did not allocate."""
    bits = torch.stack([WEIGHTS[:count] >> (first_bit + k) & 1 for k in range(PROJECTIONS)], dim=1)
    signs = array("d", (1.0 - 2.0 * bits).flatten().tolist())
    return torch.frombuffer(signs, dtype=torch.float64).view(count, PROJECTIONS)


_OF_ELEMENTS = _signs(BLOCK, 60)
_OF_BLOCKS_LOW = _signs(BLOCK_WORDS, 52)
_OF_BLOCKS_HIGH = _signs(BLOCK_WORDS, 44)


def of(tensors: Sequence[torch.Tensor]) -> Sketch | None:
    """None where a tensor holds something else than floating-point numbers, or there is none."""
    if not tensors or any(tensor.dtype.to_real() not in _FLOATS for tensor in tensors):
        return None
    nonfinite, squares, block = 0, 0.0, 0
    projections = torch.zeros(PROJECTIONS, dtype=torch.float64, device="cpu")
    with torch.no_grad():
        for tensor in tensors:
            for values in _chunks(tensor):
                if not math.isfinite(float(values.sum())):  # only then: looking at each takes longer than all the rest
                    finite = torch.isfinite(values)
                    nonfinite += int((~finite).sum())
                    values = torch.where(finite, values, 0.0)
                squares += float(values.dot(values))
                blocks = torch.nn.functional.pad(values, (0, -len(values) % BLOCK)).view(-1, BLOCK)
                projections += (blocks @ _OF_ELEMENTS * _of_blocks(block, len(blocks))).sum(dim=0)
                block += len(blocks)
    return Sketch(nonfinite, squares, tuple(projections.tolist()))


def _chunks(tensor: torch.Tensor) -> Iterator[torch.Tensor]:
    """Its elements, as doubles."""
    flat = host_elements(tensor).view(-1)
    for start in range(0, len(flat), _CHUNK):
        yield flat[start : start + _CHUNK].to(torch.float64)


def _of_blocks(first: int, count: int) -> torch.Tensor:
    numbers = torch.arange(first, first + count, device="cpu")
    return _OF_BLOCKS_LOW[numbers % BLOCK_WORDS] * _OF_BLOCKS_HIGH[numbers // BLOCK_WORDS % BLOCK_WORDS]
