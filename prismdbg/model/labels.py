"""Which of many numbered places along a line get their number: those of one stride, so that no reader has to guess."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise


def stride(least: float) -> int:
    """The first of 1, 2, 5, 10, 20, ... that is at least `least`."""
    power = 1
    while True:
        for factor in (1, 2, 5):
            if factor * power >= least:
                return factor * power
        power *= 10


def labelled(places: Sequence[tuple[int, int, str]], width: int, gap: int) -> dict[int, str]:
    """Labels by cell, of (number, cell, label) in the order of cells: as many as fit, at least `gap` cells apart.

    Their numbers are the multiples of one stride. If none of these has room, the first place that has room is labelled.
    """
    fitting = [place for place in places if 0 <= place[1] <= width - len(place[2])]
    most = max((number for number, _, _ in fitting), default=0)
    every, chosen = 1, fitting
    while not _are_apart(chosen, gap):
        every = stride(every + 1)
        chosen = [place for place in fitting if not place[0] % every] if every <= most else []
    return {cell: label for _, cell, label in chosen or fitting[:1]}


def _are_apart(places: Sequence[tuple[int, int, str]], gap: int) -> bool:
    return all(before[1] + len(before[2]) + gap <= after[1] for before, after in pairwise(places))
