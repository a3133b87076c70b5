"""The one file that imports scikit-learn (extra `predict`), when something is fitted.

The mean of gradient boosting and of extremely randomized trees was as good as the better of them, for published
operators (`tests/bench/sections/predict.py`), and no worse than random forests.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np

from prismdbg.errors import FacilityError
from prismdbg.predict.operators.work import Floats

_SEED = 0
_FEW = 10_000


class Forest:
    """Fitted to `values`, shape (n,), at `points`, shape (n, features). The same input gives the same forest."""

    def __init__(self, points: Floats, values: Floats) -> None:
        ensemble = _loaded()
        self._models: Sequence[Any] = (
            ensemble.HistGradientBoostingRegressor(
                max_iter=300, learning_rate=0.08, min_samples_leaf=5, early_stopping=False, random_state=_SEED
            ),
            ensemble.ExtraTreesRegressor(n_estimators=60, random_state=_SEED),
        )
        with _one_thread(points):
            for model in self._models:
                model.fit(points, values)

    def at(self, points: Floats) -> Floats:
        """Shape (n,)."""
        with _one_thread(points):
            values: Floats = np.mean([model.predict(points) for model in self._models], axis=0)
        return values


def _one_thread(points: Floats) -> AbstractContextManager[object]:
    """Where there are few points. Threads of OpenMP wait for each other once for each tree, and on a busy machine each
    of these waits takes longer than the work."""
    from threadpoolctl import threadpool_limits  # of scikit-learn's own requirements

    return threadpool_limits(1, "openmp") if len(points) < _FEW else nullcontext()


def non_negative(system: Floats, values: Floats) -> Floats:
    """The least squares of shares that are not below zero: shapes (n, parts) and (n,) give (parts,)."""
    _loaded()
    from scipy.optimize import nnls

    shares: Floats = nnls(system, values)[0]
    return shares


def nearest_mixture(points: Floats, point: Floats) -> float:
    """How far, in the units of the points, a point is from their convex hull: 0 inside. Shapes (n, d) and (d,)."""
    weight = 1e3  # of the condition that the shares of the points add up to one
    system, values = np.vstack([points.T, np.full(len(points), weight)]), np.append(point, weight)
    return float(np.linalg.norm(system @ non_negative(system, values) - values))


def _loaded() -> Any:
    try:
        from sklearn import ensemble
    except ImportError as error:
        raise FacilityError(
            "scikit-learn is not installed", hint="pip install 'prismdbg[predict]', or pip install scikit-learn"
        ) from error
    return ensemble
