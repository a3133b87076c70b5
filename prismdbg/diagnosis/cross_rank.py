"""What several ranks' logs say of the same collectives, side by side, without a value for each of them.

Texts and stacks have numbers of their own in each log; here they get common ones.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from prismdbg.diagnosis.evidence import Evidence
from prismdbg.log.columns import LogColumns
from prismdbg.log.distinct import distinct
from prismdbg.log.segment import Ints
from prismdbg.model.collective import UNNAMED
from prismdbg.model.frame import source_of

NOWHERE = -1
Bools = NDArray[np.bool_]
Picked = Mapping[int, Ints]  # by rank: rows


@dataclass(slots=True)
class Numbers:
    """The same number for what is the same in all logs."""

    known: dict[Hashable, int] = field(default_factory=dict)

    def of(self, column: Ints, meaning: Callable[[int], Hashable]) -> Ints:
        """`meaning` is asked once for each value that the column has."""
        values, _, place = distinct(column)
        common = [self.known.setdefault(meaning(int(value)), len(self.known)) for value in values]
        return np.array(common, dtype=np.int64)[place]


def ops(numbers: Numbers, log: LogColumns, rows: Ints) -> Ints:
    return numbers.of(log.op[rows], lambda op: log.texts.get(op, ""))


def lines(numbers: Numbers, log: LogColumns, rows: Ints) -> Ints:
    """The program's own line; NOWHERE where it is not known."""
    found = numbers.of(log.stack[rows], lambda stack: source_of(log.frames(stack)))
    return np.where(found == numbers.known.get(None, NOWHERE), NOWHERE, found)


def is_op(log: LogColumns, wanted: frozenset[str] | set[str], rows: Ints | None = None) -> Bools:
    """Which of these rows are of one of these operators. None: of all rows."""
    op = log.op if rows is None else log.op[rows]
    return np.isin(op, [number for number, text in log.texts.items() if text in wanted])


def groups(evidence: Evidence) -> list[str]:
    """Those with a name in which something was issued, in the order of ranks and of their logs."""
    found: dict[str, None] = {}
    for log in evidence.columns.values():
        numbers, first, _ = distinct(log.group)
        found |= dict.fromkeys(log.texts.get(int(number), "") for number in numbers[np.argsort(first)])
    found.pop(UNNAMED, None)
    return list(found)


def rows_of(evidence: Evidence, group: str, *, p2p: bool = False) -> dict[int, Ints]:
    """By rank the rows of a group's collectives, or of its messages; ranks without any are left out."""
    if not evidence.rows_by_group:
        for rank, log in evidence.columns.items():
            for key, rows in _by_group(log):
                evidence.rows_by_group.setdefault(key, {})[rank] = rows
    return dict(evidence.rows_by_group.get((group, p2p), {}))


def _by_group(log: LogColumns) -> Iterator[tuple[tuple[str, bool], Ints]]:
    """A job has hundreds of groups: each log is gone through once for all of them."""
    if not len(log):
        return
    named = Numbers()
    key = named.of(log.group, lambda number: log.texts.get(number, "")) * 2 + log.is_p2p
    order = np.argsort(key, kind="stable")
    names = list(named.known)
    starts = np.flatnonzero(np.diff(key[order], prepend=-1))
    for start, rows in zip(starts, np.split(order, starts[1:]), strict=True):
        group, is_p2p = divmod(int(key[order[start]]), 2)
        yield (str(names[group]), bool(is_p2p)), rows


def met(evidence: Evidence, rows: Picked) -> tuple[Ints, dict[int, Ints]]:
    """The sequence numbers that all of these ranks have, and by rank the row of each."""
    common: Ints | None = None
    for rank, picked in rows.items():
        seqs = evidence.columns[rank].seq[picked]
        seqs = seqs if is_ascending(seqs) else np.unique(seqs)
        if common is None:
            common = seqs
        elif not np.array_equal(common, seqs):
            common = np.intersect1d(common, seqs, assume_unique=True)
    if common is None:
        return np.zeros(0, dtype=np.int64), {}
    return common, {rank: at_seqs(evidence.columns[rank], picked, common) for rank, picked in rows.items()}


def at_seqs(log: LogColumns, rows: Ints, seqs: Ints) -> Ints:
    """For each sequence number the row that has it: all of them must be there."""
    theirs = log.seq[rows]
    if not is_ascending(theirs):
        order = np.argsort(theirs, kind="stable")
        rows, theirs = rows[order], theirs[order]
    found: Ints = rows[np.searchsorted(theirs, seqs, side="right") - 1]
    return found


def is_ascending(numbers: Ints) -> bool:
    """As sequence numbers are, but where a group of one name was made again: in a long log a look at that is a tenth
    of sorting them."""
    return bool((np.diff(numbers) > 0).all())
