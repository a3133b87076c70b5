"""Where one rank of a group left a line at which all of its ranks had met, and never came back to it.

Ranks may call one collective from different lines on purpose, always or from some step on: a branch for rank 0, the
stages of a pipeline, a report every ten steps. So a line counts only where all were at it before, the others still are,
and the one rank is no more. Pure.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from prismdbg.diagnosis.cross_rank import NOWHERE, Bools
from prismdbg.log.segment import Ints

FEWEST = 2  # times that all were at the line before, and that the rank was not since


def first_change(lines: NDArray[np.int64]) -> tuple[int, int] | None:
    """The first such place: row and column. `lines`: by rank and collective its line's number, or NOWHERE."""
    if lines.shape[0] < 2 or not lines.shape[1]:
        return None
    alike = (lines == lines[0]).all(axis=0) & (lines[0] != NOWHERE)
    usual = np.where(alike, lines[0], _of_two(lines, alike) if len(lines) == 2 else _majority(lines))
    others = (lines != usual).sum(axis=0)
    found = []
    for number, row in enumerate(lines):
        odd = (others == 1) & (row != usual) & (row != NOWHERE)
        for line in np.unique(usual[odd]).tolist():
            there = np.flatnonzero((usual == line) & (others <= 1) & (row != NOWHERE))
            if line != NOWHERE and (column := _left(there, row, line)) is not None:
                found.append((column, number))
    return min(found)[::-1] if found else None


def _left(columns: Ints, row: Ints, line: int) -> int | None:
    """Of the collectives at a line the first at which the rank is elsewhere, if it is from there on."""
    there = row[columns] == line
    since = len(there) - int(there[::-1].argmax()) if there.any() else 0
    is_change = there[:since].all() and since >= FEWEST and len(there) - since >= FEWEST
    return int(columns[since]) if is_change else None


def _majority(lines: NDArray[np.int64]) -> Ints:
    """The line at which all but one are, where it is so: two of any three ranks are at it."""
    first, second, third = lines[:3]
    majority: Ints = np.where((first == second) | (first == third), first, second)
    return majority


def _of_two(lines: NDArray[np.int64], alike: Bools) -> Ints:
    """Of two ranks the line of the one that is where both were before; NOWHERE where that is both or none."""
    known = [_met_often(row, alike) for row in lines]
    return np.where(known[0] == known[1], NOWHERE, np.where(known[0], lines[0], lines[1]))


def _met_often(row: Ints, alike: Bools) -> Bools:
    """Where the rank is at a line at which both have met often enough by then. Sorted by line, what was counted before
    a line's first call is taken off: the time does not grow with the number of lines."""
    order = np.argsort(row, kind="stable")
    lines, met = row[order], alike[order]
    counts = np.cumsum(met)
    first = np.searchsorted(lines, lines)
    often: Bools = np.empty(len(row), dtype=bool)
    often[order] = (counts - counts[first] + met[first] >= FEWEST) & (lines != NOWHERE)
    return often
