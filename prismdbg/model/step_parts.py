"""What repeats in each step, in parts that can be drawn: cut at the same places of every step, or it seems to grow."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise


def step_parts(begins: Sequence[int], end: int, most: int) -> list[int]:
    """Where parts of the places from 0 to before `end` begin: at most `most`, ascending. `begins`: of the steps.

    Steps of the usual length have the same number of parts each; where there are more steps than parts, a part is whole
    steps. Parts that are cut without regard to steps have another share of the step each time: what their most is then
    changes slowly from step to step, though nothing in the steps does.
    """
    if end <= most:
        return list(range(end))
    bounds = [*sorted({0, *begins} - {end}), end]
    lengths = [after - before for before, after in pairwise(bounds)]
    if len(lengths) >= most:
        return bounds[: -1 : -(-len(lengths) // most)]
    counts = _counts(lengths, most)
    return [
        begin + part * length // count
        for begin, length, count in zip(bounds, lengths, counts, strict=False)
        for part in range(count)
    ]


def _counts(lengths: Sequence[int], most: int) -> list[int]:
    """How many parts each step has: a whole number in a usual one, so that a few events more or less change nothing."""
    usual = sorted(lengths)[len(lengths) // 2]
    parts = float(max(most * usual // sum(lengths) + 1, 1))
    while True:
        counts = [min(max(round(length / usual * parts), 1), length) for length in lengths]
        if sum(counts) <= most:
            return counts
        parts = parts - 1 if parts > 1 else parts / 2
