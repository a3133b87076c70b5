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
from prismdbg.simulate.cluster.transfer import (
    ALL_REDUCE,
    BARRIER,
    ROOTED,
    SECOND_NS,
    SEND,
    Geometry,
    formula_ns,
    message_ns,
)

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

    Figures and choices depend on each other: they are found in turn, from every algorithm as the first guess. If that
    is much nearer, a node has fewer links than ranks.
    """
    best = _fitted(model, points, links=0)
    for links in _fewer_links(points):
        found = _fitted(model, points, links)
        if _errors_of_all(found, points) < _BETTER * _errors_of_all(best, points):
            best = found
    return best


def _fewer_links(points: Sequence[Point]) -> list[int]:
    """That the ranks of a node may share: powers of two."""
    most = max(point.where.local for point in points if point.where.nodes > 1) if _leaves(points) else 1
    return [1 << shift for shift in range((most - 1).bit_length())]


def _leaves(points: Sequence[Point]) -> bool:
    return any(point.where.nodes > 1 for point in points)


def _fitted(model: ClusterModel, points: Sequence[Point], links: int) -> ClusterModel:
    """`links`: of a node; 0 for one of each rank."""
    found = [_from(model, points, links, algorithm) for algorithm in Algorithm]
    return min(found, key=lambda fitted: _errors_of_all(fitted, points))


def _from(model: ClusterModel, points: Sequence[Point], links: int, guess: Algorithm) -> ClusterModel:
    ops = sorted({point.op for point in points} - {SEND, BARRIER})
    choices: dict[str, tuple[Choice, ...]] = {op: (Choice(guess),) for op in ops}
    for _ in range(_ROUNDS):
        model = replace(model, algorithms=choices)
        for number in range(len(model.tiers)):
            model = _with(model, number, [point for point in points if point.where.tier == number], links)
        found = {op: _choose(model, op, [point for point in points if point.op == op]) for op in ops}
        if found == choices:
            break
        choices = found
    return replace(model, algorithms=choices)


def _errors_of_all(model: ClusterModel, points: Sequence[Point]) -> float:
    return sum(_error(model, point) for point in points)


def _error(model: ClusterModel, point: Point) -> float:
    """A factor too much is as bad as the same too little."""
    return abs(math.log(max(point_ns(model, point), 1) / point.time_ns))


def point_ns(model: ClusterModel, point: Point) -> int:
    """By the formula alone."""
    if point.op == SEND:
        return message_ns(model.tiers[point.where.tier], point.size_bytes, point.where.sharing)
    return formula_ns(model, point.op, point.size_bytes, point.where)


def _with(model: ClusterModel, number: int, points: Sequence[Point], links: int) -> ClusterModel:
    """The formula is linear in latency and in the time of a byte; what each counts is asked of the formula itself, at
    rates so low that no other link bounds them. Where one does now, the time of a byte counts for nothing.
    """
    before, of_node = model.tiers[number], links if _leaves(points) else 0

    def at(latency_ns: int, rate: int) -> ClusterModel:
        tier = replace(before, latency_ns=latency_ns, rate=rate, node_rate=of_node * rate)
        return replace(model, tiers=(*model.tiers[:number], tier, *model.tiers[number + 1 :]))

    def times(latency_ns: int, rate: int) -> NDArray[np.float64]:
        return np.array([point_ns(at(latency_ns, rate), point) for point in points], dtype=np.float64)

    slow, twice = times(0, _UNIT), times(0, 2 * _UNIT)
    by_latency = (times(_UNIT, _UNIT) - slow) / _UNIT
    by_byte_ns = 2 * (slow - twice) / 1000  # at a million bytes a second a byte takes 1000 ns
    known = 2 * twice - slow
    if before.rate:
        now = times(0, before.rate)
        bound = now > (known + by_byte_ns * SECOND_NS / before.rate) * (1 + _CLOSE)
        if not bound.all():
            known, by_byte_ns = np.where(bound, now, known), np.where(bound, 0.0, by_byte_ns)
    measured = np.array([point.time_ns for point in points])
    latency_ns, byte_ns = _least(np.stack([by_latency, by_byte_ns], axis=1) / measured[:, None], 1 - known / measured)
    return at(round(latency_ns), _rate(byte_ns))


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
