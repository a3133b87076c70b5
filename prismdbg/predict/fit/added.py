"""How long a shape takes at constant efficiency: its arithmetic, its bytes and the call itself, added up.

A sum, not the longer of them (a roofline): it was nearer on shapes wider than the samples. Fitted to widths of up to
2,560 of the published A100 operators and asked for those above 6,144, its mean error is 8.34 % (commit 69d9a005,
docs/prediction.md).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from prismdbg.predict.fit.forest import non_negative
from prismdbg.predict.operators.work import Floats, Work


@dataclass(frozen=True, slots=True, kw_only=True)
class Added:
    """`flop_ns`, `byte_ns`: of each, 0 where nothing of that kind was sampled. call_ns: of any call."""

    flop_ns: float
    byte_ns: float
    call_ns: float

    @classmethod
    def of(cls, work: Work, times_ns: Floats) -> Added:
        """Non-negative least squares of the relative error."""
        parts = np.stack([work.flops, work.moved_bytes, np.ones(len(times_ns))], axis=1)
        largest = parts.max(axis=0)
        unit = np.where(largest > 0, largest, 1.0)
        shares = non_negative(parts / unit / times_ns[:, None], np.ones(len(times_ns))) / unit
        return cls(flop_ns=float(shares[0]), byte_ns=float(shares[1]), call_ns=float(shares[2]))

    def time_ns(self, work: Work) -> Floats:
        return self.flop_ns * work.flops + self.byte_ns * work.moved_bytes + self.call_ns
