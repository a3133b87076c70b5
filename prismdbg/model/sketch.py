"""What little is kept of floating-point values that a rank sends, so that a replay on other hardware can tell how far
its own values are from them. Pure; `rank/c10d/sketches.py` and the native recorder compute them."""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass

PROJECTIONS = 4
_BYTES = struct.Struct(f"<Qd{PROJECTIONS}d")
SIZE_BYTES = _BYTES.size


@dataclass(frozen=True, slots=True)
class Sketch:
    """nonfinite: how many elements are NaN or infinite; they count as 0 in the rest. squares: the sum of all squares.
    projections: sums of all elements, each with the sign that belongs to its place."""

    nonfinite: int
    squares: float
    projections: tuple[float, ...]

    def pack(self) -> bytes:
        return _BYTES.pack(self.nonfinite, self.squares, *self.projections)

    @classmethod
    def unpack_from(cls, data: bytes, offset: int) -> Sketch:
        """`struct.error` where the data has no room for it."""
        nonfinite, squares, *projections = _BYTES.unpack_from(data, offset)
        return cls(nonfinite, squares, tuple(projections))


def relative_difference(recorded: Sketch, actual: Sketch) -> float:
    """An estimate of the Euclidean norm of the difference, divided by that of the recorded value; infinite where that
    cannot be said.

    The square of each difference of projections has the square of the norm as its mean (Alon, Matias, Szegedy: The
    space complexity of approximating the frequency moments, 1996). With four of them, the estimate is below half of the
    norm in one of ten cases, and above its double in one of three hundred.
    """
    pairs = zip(recorded.projections, actual.projections, strict=True)
    squared = sum((a - b) * (a - b) for a, b in pairs) / PROJECTIONS
    if recorded.nonfinite != actual.nonfinite or not math.isfinite(squared) or not math.isfinite(recorded.squares):
        return math.inf
    if squared == 0:
        return 0.0
    return math.sqrt(squared / recorded.squares) if recorded.squares > 0 else math.inf
