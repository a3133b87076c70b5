"""Measured times of one collective in groups of one size, by message size. Between two sizes on the straight line:
so a latency and a rate go on as they are.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """`sizes_bytes` ascend; each has its time, above zero. `members`: ranks of the group."""

    members: int
    sizes_bytes: tuple[int, ...]
    times_ns: tuple[int, ...]

    def time_ns(self, size_bytes: int) -> float:
        """Within what was measured; the nearest end outside of it."""
        if size_bytes <= self.sizes_bytes[0]:
            return float(self.times_ns[0])
        if size_bytes >= self.sizes_bytes[-1]:
            return float(self.times_ns[-1])
        after = bisect_left(self.sizes_bytes, size_bytes)
        if self.sizes_bytes[after] == size_bytes:
            return float(self.times_ns[after])
        (x0, x1), (y0, y1) = self.sizes_bytes[after - 1 : after + 1], self.times_ns[after - 1 : after + 1]
        return y0 + (y1 - y0) * (size_bytes - x0) / (x1 - x0)

    def clamped(self, size_bytes: int) -> int:
        """The nearest size within what was measured."""
        return min(max(size_bytes, self.sizes_bytes[0]), self.sizes_bytes[-1])

    def slower(self, ppm: int) -> Curve:
        return Curve(
            members=self.members,
            sizes_bytes=self.sizes_bytes,
            times_ns=tuple(max(time_ns * ppm // 10**6, 1) for time_ns in self.times_ns),
        )


def nearest(curves: Sequence[Curve], members: int) -> Curve:
    """Of the group whose size differs by the smallest factor; the larger of two."""
    return min(curves, key=lambda curve: (abs(math.log(curve.members / members)), -curve.members))
