"""Medians, ratios of pairs, and how far they may be off. Pure."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
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
