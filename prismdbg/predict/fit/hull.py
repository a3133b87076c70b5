"""Whether a shape lies between those that were sampled: in the convex hull of their logarithms."""

from __future__ import annotations

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
        self._least, self._most = self._points.min(axis=0), self._points.max(axis=0)

    def outside(self, work: Work) -> list[str]:
        """For each shape, what is outside, as `k=25600 (sampled: 512 to 8192)`; empty where nothing is."""
        return [self._complaint(point) for point in self._of(work)]

    def _complaint(self, point: Floats) -> str:
        for at, name in enumerate(self._names):
            if not self._least[at] - _TOLERANCE <= point[at] <= self._most[at] + _TOLERANCE:
                return f"{name}={2 ** point[at]:g} (sampled: {2 ** self._least[at]:g} to {2 ** self._most[at]:g})"
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
