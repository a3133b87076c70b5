"""The one file that imports scikit-learn (extra `predict`), when something is fitted.

The mean of gradient boosting and of extremely randomized trees was as good as the better of them, for published
operators (`tests/bench/sections/predict.py`), and no worse than random forests.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from prismdbg.errors import FacilityError
from prismdbg.predict.operators.work import Floats

_SEED = 0


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
        for model in self._models:
            model.fit(points, values)

    def at(self, points: Floats) -> Floats:
        """Shape (n,)."""
        values: Floats = np.mean([model.predict(points) for model in self._models], axis=0)
        return values


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
