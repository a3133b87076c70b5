"""Whether a shape lies between those that were sampled: in the convex hull of their logarithms, and in the range of all
that its sizes do not say.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from prismdbg.predict.fit.forest import nearest_mixture
from prismdbg.predict.operators.work import Floats, Work

_TOLERANCE = 0.02  # of a factor of two, and what rounding leaves
_MOST_POINTS = 400


class Hull:
    """Of the samples of one operator."""

    def __init__(self, work: Work) -> None:
        self._names = sorted(work.sizes)
        self._points = np.unique(self._of(work), axis=0)
        self._ranges = _ranges(work)

    def outside(self, work: Work) -> list[str]:
        """For each shape, the first that is outside, as `k=25600 (sampled: 512 to 8192)`; empty where nothing is."""
        values = {name: np.log2(of_all) for name, of_all in _ranged(work).items()}
        return [
            self._complaint(point, {name: float(of_all[number]) for name, of_all in values.items()})
            for number, point in enumerate(self._of(work))
        ]

    def _complaint(self, point: Floats, values: Mapping[str, float]) -> str:
        for name, (least, most) in self._ranges.items():
            if not least - _TOLERANCE <= values.get(name, least) <= most + _TOLERANCE:
                return f"{name}={2 ** values[name]:g} (sampled: {2**least:g} to {2**most:g})"
        if nearest_mixture(self._near(point), point) > _TOLERANCE:
            return "this combination of sizes is outside what was sampled"
        return ""

    def _near(self, point: Floats) -> Floats:
        """Of many samples the nearest, and some of all: rather outside than wrongly inside."""
        if len(self._points) <= _MOST_POINTS:
            return self._points
        away = self._points - point
        order = np.argsort((away**2).sum(axis=1))
        step = max(len(order) // (_MOST_POINTS // 2), 1)
        near: Floats = self._points[np.concatenate([order[: _MOST_POINTS // 2], order[_MOST_POINTS // 2 :: step]])]
        return near

    def _of(self, work: Work) -> Floats:
        points: Floats = np.stack([np.log2(work.sizes[name]) for name in self._names], axis=1)
        return points


def _ranged(work: Work) -> dict[str, Floats]:
    """What must lie in the range of the samples by itself, limits first, so that no size hides them: nothing goes on
    beyond them. Products have the bytes that their sizes say."""
    moved = {} if work.flops.any() else {"moved_bytes": work.moved_bytes}
    return {**work.limits, **{name: work.sizes[name] for name in sorted(work.sizes)}, **moved}


def _ranges(work: Work) -> dict[str, tuple[float, float]]:
    ranged = {name: np.log2(values) for name, values in _ranged(work).items()}
    return {name: (float(values.min()), float(values.max())) for name, values in ranged.items()}
