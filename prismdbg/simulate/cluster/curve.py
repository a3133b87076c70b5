"""Measured times of one collective in groups that lie alike, by message size. Between two sizes on the straight line:
so a latency and a rate go on as they are.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol


class Lies(Protocol):
    """Where a group lies: its ranks, its nodes, and its ranks in each of them."""

    @property
    def members(self) -> int: ...
    @property
    def nodes(self) -> int: ...
    @property
    def local(self) -> int: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """`sizes_bytes` ascend; each has its time, above zero. `members`: ranks of the group. nodes: that have equally many
    of them, 0 where nobody says how many.
    """

    members: int
    sizes_bytes: tuple[int, ...]
    times_ns: tuple[int, ...]
    nodes: int = 0

    def is_of(self, where: Lies) -> bool:
        """Also where that cannot be known."""
        is_even = self.members == where.nodes * where.local
        return self.members == where.members and (not self.nodes or (self.nodes == where.nodes and is_even))

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


def nearest(curves: Sequence[Curve], where: Lies) -> Curve:
    """Of the group whose ranks, and ranks in a node, differ by the smallest factor; of two, first the one that has as
    many in a node, then the larger."""

    def apart(curve: Curve) -> tuple[float, float, int]:
        of_node = abs(math.log(curve.members / curve.nodes / where.local)) if curve.nodes else 0.0
        return round(of_node + abs(math.log(curve.members / where.members)), 9), of_node, -curve.members

    return min(curves, key=apart)
