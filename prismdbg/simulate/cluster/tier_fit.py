"""Latency and rate of each tier of links, and the algorithm of each operation, that come closest to measured times.

Least absolute relative errors, by least squares with weights, so that a few odd points decide nothing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from prismdbg.simulate.cluster.cluster import Algorithm, Choice, ClusterModel
from prismdbg.simulate.cluster.transfer import ALL_REDUCE, BARRIER, ROOTED, SEND, Geometry, formula_ns, message_ns

_UNIT = 10**6
_ROUNDS = 20
_CLOSE = 0.01  # errors below it weigh alike
_BETTER = 0.9  # a second algorithm must lessen the errors that much
LARGEST_RATE = 10**14


@dataclass(frozen=True, slots=True)
class Point:
    op: str
    where: Geometry
    size_bytes: int
    time_ns: float


def fit_formula(model: ClusterModel, points: Sequence[Point]) -> ClusterModel:
    """`model` with the latency and rate of every tier, each of which has points, and the choice of algorithms.

    Figures and choices depend on each other: they are found in turn, from every algorithm as the first guess.
    """
    found = [_from(model, points, algorithm) for algorithm in Algorithm]
    return min(found, key=lambda fitted: sum(_error(fitted, point) for point in points))


def _from(model: ClusterModel, points: Sequence[Point], guess: Algorithm) -> ClusterModel:
    ops = sorted({point.op for point in points} - {SEND, BARRIER})
    choices: dict[str, tuple[Choice, ...]] = {op: (Choice(guess),) for op in ops}
    for _ in range(_ROUNDS):
        model = replace(model, algorithms=choices)
        for number in range(len(model.tiers)):
            model = _with(model, number, [point for point in points if point.where.tier == number])
        found = {op: _choose(model, op, [point for point in points if point.op == op]) for op in ops}
        if found == choices:
            break
        choices = found
    return replace(model, algorithms=choices)


def _error(model: ClusterModel, point: Point) -> float:
    """A factor too much is as bad as the same too little."""
    return abs(math.log(max(point_ns(model, point), 1) / point.time_ns))


def point_ns(model: ClusterModel, point: Point) -> int:
    """By the formula alone."""
    if point.op == SEND:
        return message_ns(model.tiers[point.where.tier], point.size_bytes, point.where.sharing)
    return formula_ns(model, point.op, point.size_bytes, point.where)


def _with(model: ClusterModel, number: int, points: Sequence[Point]) -> ClusterModel:
    """The formula is linear in latency and in the time of a byte; what each counts is asked of the formula itself."""

    def times(latency_ns: int, rate: int) -> NDArray[np.float64]:
        tier = replace(model.tiers[number], latency_ns=latency_ns, rate=rate)
        tried = replace(model, tiers=(*model.tiers[:number], tier, *model.tiers[number + 1 :]))
        return np.array([point_ns(tried, point) for point in points], dtype=np.float64)

    known = times(0, 0)
    by_latency = (times(_UNIT, 0) - known) / _UNIT
    by_byte_ns = (times(0, _UNIT) - known) / 1000  # at a million bytes a second a byte takes 1000 ns
    measured = np.array([point.time_ns for point in points])
    latency_ns, byte_ns = _least(np.stack([by_latency, by_byte_ns], axis=1) / measured[:, None], 1 - known / measured)
    tier = replace(model.tiers[number], latency_ns=round(latency_ns), rate=_rate(byte_ns))
    return replace(model, tiers=(*model.tiers[:number], tier, *model.tiers[number + 1 :]))


def _least(rows: NDArray[np.float64], wanted: NDArray[np.float64]) -> tuple[float, float]:
    """Neither below zero."""
    weights = np.ones(len(wanted))
    found = np.zeros(2)
    for _ in range(_ROUNDS):
        found = _not_negative(rows * weights[:, None], wanted * weights)
        weights = 1 / np.sqrt(np.maximum(np.abs(rows @ found - wanted), _CLOSE))
    return float(found[0]), float(found[1])


def _not_negative(rows: NDArray[np.float64], wanted: NDArray[np.float64]) -> NDArray[np.float64]:
    found: NDArray[np.float64] = np.linalg.lstsq(rows, wanted, rcond=None)[0].astype(np.float64)
    for kept in (0, 1):
        if found[1 - kept] < 0:
            alone = rows[:, kept]
            found = np.zeros(2)
            found[kept] = max(float(alone @ wanted) / max(float(alone @ alone), 1e-300), 0.0)
    return found


def _rate(byte_ns: float) -> int:
    """Four digits: more would claim too much."""
    rate = min(10**9 / byte_ns if byte_ns > 0 else LARGEST_RATE, LARGEST_RATE)
    return max(int(float(f"{rate:.3e}")), 1)


def _choose(model: ClusterModel, op: str, points: Sequence[Point]) -> tuple[Choice, ...]:
    """One algorithm, or one up to some size and another beyond it."""
    errors = {algorithm: _errors(model, algorithm, points) for algorithm in _algorithms(op, points)}
    best = min(errors, key=lambda algorithm: sum(errors[algorithm].values()))
    choices: tuple[Choice, ...] = (Choice(best),)
    least = sum(errors[best].values()) * _BETTER
    for limit in sorted(errors[best])[:-1]:
        for small in errors:
            for large in errors:
                total = sum(errors[small if size <= limit else large][size] for size in errors[best])
                if small is not large and total < least:
                    choices, least = (Choice(small, limit), Choice(large)), total
    return choices


def _algorithms(op: str, points: Sequence[Point]) -> list[Algorithm]:
    found = [Algorithm.RING]
    if op == ALL_REDUCE or op in ROOTED:
        found.append(Algorithm.TREE)
    if op == ALL_REDUCE and any(p.where.nodes > 1 and p.where.local > 1 for p in points):
        found.append(Algorithm.HIERARCHICAL)
    return found


def _errors(model: ClusterModel, algorithm: Algorithm, points: Sequence[Point]) -> dict[int, float]:
    """By size, over all groups."""
    tried = replace(model, algorithms={points[0].op: (Choice(algorithm),)})
    found: dict[int, float] = {}
    for point in points:
        found[point.size_bytes] = found.get(point.size_bytes, 0.0) + _error(tried, point)
    return found
