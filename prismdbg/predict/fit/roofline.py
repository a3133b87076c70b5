"""The least time that a shape can take on the machine of the samples: its arithmetic at the best rate that any sample
reached, or its bytes at theirs, whichever is longer, and what even the smallest sample took.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from prismdbg.predict.operators.work import Floats, Work

SECOND_NS = 1e9


@dataclass(frozen=True, slots=True, kw_only=True)
class Roofline:
    """flops, bytes_per_s: a second, 0 where nothing of that kind was sampled. floor_ns: of any call."""

    flops: float
    bytes_per_s: float
    floor_ns: float

    @classmethod
    def of(cls, work: Work, times_ns: Floats) -> Roofline:
        seconds = times_ns / SECOND_NS
        return cls(
            flops=float(np.max(work.flops / seconds)),
            bytes_per_s=float(np.max(work.moved_bytes / seconds)),
            floor_ns=float(times_ns.min()) / 2,
        )

    def time_ns(self, work: Work) -> Floats:
        arithmetic = work.flops / self.flops if self.flops else 0 * work.flops
        moved = work.moved_bytes / self.bytes_per_s if self.bytes_per_s else 0 * work.moved_bytes
        return np.maximum(arithmetic, moved) * SECOND_NS + self.floor_ns
