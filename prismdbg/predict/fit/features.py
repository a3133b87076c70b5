"""What a regressor sees of a shape: logarithms, so that factors are distances, and how round each size is."""

from __future__ import annotations

import numpy as np

from prismdbg.predict.fit.added import Added
from prismdbg.predict.operators.work import Floats, Work

_ROUNDEST = 1024


def features(work: Work, added: Added) -> Floats:
    """Shape (n, features)."""
    sizes = [work.sizes[name] for name in sorted(work.sizes)]
    columns = [np.log2(size) for size in sizes]
    if not work.has_tiles:
        return np.stack(columns, axis=1)
    intensity = np.log2(work.flops + 1) - np.log2(work.moved_bytes + 1)
    columns += [np.log2(added.time_ns(work)), intensity]
    return np.stack([*columns, *(_roundness(size) for size in sizes)], axis=1)


def _roundness(size: Floats) -> Floats:
    """log2 of the largest power of two, up to 1,024, of which it is a multiple; -1 where it is no whole number.

    Kernels are written for such sizes, and fall back to slower ones elsewhere.
    """
    whole = np.where((size == np.floor(size)) & (size < 2**62), size, 0).astype(np.int64)
    power = np.minimum(whole & -whole, _ROUNDEST)
    return np.where(power > 0, np.log2(np.maximum(power, 1)), -1.0)
