"""Medians, ratios of pairs, and how far they may be off. Pure."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import median

RESAMPLES = 4000
_SEED = 12345


@dataclass(frozen=True, slots=True)
class Interval:
    """95 % of the medians of samples drawn anew from the measured ones (percentile bootstrap)."""

    low: float
    high: float


def quantile(values: Sequence[float], part: float) -> float:
    """Linear between the two nearest."""
    ordered = sorted(values)
    place = part * (len(ordered) - 1)
    below = int(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (place - below)


def ratios(treated: Sequence[float], bare: Sequence[float]) -> list[float]:
    """Of pairs measured one after the other."""
    return [t / b for t, b in zip(treated, bare, strict=True)]


def interval(values: Sequence[float]) -> Interval | None:
    """None where there are too few values to say anything."""
    if len(values) < 5:
        return None
    draw = random.Random(_SEED)
    medians = sorted(median(draw.choices(values, k=len(values))) for _ in range(RESAMPLES))
    return Interval(quantile(medians, 0.025), quantile(medians, 0.975))


def kendall(one: Mapping[str, float], other: Mapping[str, float]) -> float:
    """Kendall's tau of two orders of the same names: 1 for the same order, -1 for the opposite one (tau-a)."""
    signs = [(one[a] - one[b]) * (other[a] - other[b]) for a, b in combinations(one, 2)]
    return sum((sign > 0) - (sign < 0) for sign in signs) / max(len(signs), 1)
