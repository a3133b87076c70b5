"""By how much slower each of several is that do the same at once on one node."""

from __future__ import annotations

from dataclasses import dataclass

from prismdbg.simulate.quantities import MILLION

LARGEST_PPM = 1000 * MILLION


@dataclass(frozen=True, slots=True)
class Slowdown:
    """`points`: how many, from two and ascending, with the factor in millionths, at least one million.

    A single one has the factor 1. Without points, so has any number.
    """

    points: tuple[tuple[int, int], ...] = ()

    def ppm(self, count: int) -> int:
        """Between two points on the straight line, rounded down. Beyond the last on the line through the last two, but
        never less than at the last nor more than `LARGEST_PPM`."""
        known = ((1, MILLION), *self.points)
        if count <= 1 or not self.points:
            return MILLION
        after = next((number for number, (at, _) in enumerate(known) if at >= count), len(known) - 1)
        (x0, y0), (x1, y1) = known[after - 1 : after + 1]
        found = y0 + (y1 - y0) * (count - x0) // (x1 - x0)
        return min(max(found, y1), LARGEST_PPM) if count > x1 else found
