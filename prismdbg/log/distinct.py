"""What a column has, and where: as numpy's `unique`, which sorts. Most columns of a log are small numbers."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]

_MOST = 1 << 22  # values from 0 on that are counted: the two tables have 16 bytes for each


def distinct(column: Ints) -> tuple[Ints, Ints, Ints]:
    """The values in ascending order, of each the first row that has it, and by row the position of its value."""
    if not len(column) or column.min() < 0 or column.max() >= min(_MOST, 8 * len(column) + 1024):
        return np.unique(column, return_index=True, return_inverse=True)
    first = np.full(int(column.max()) + 1, -1, dtype=np.int64)
    first[column[::-1]] = np.arange(len(column) - 1, -1, -1)  # of equal places the last one that is told stays
    values = np.flatnonzero(first >= 0)
    place = np.zeros(len(first), dtype=np.int64)
    place[values] = np.arange(len(values))
    return values, first[values], place[column]


def kinds_of(*columns: Ints) -> tuple[Ints, Ints]:
    """Rows that are equal in all of these columns are of one kind: for each kind one row of it, for each row its kind.
    Several times as fast as numpy's `unique` over an axis."""
    rows, kind = np.zeros(0, dtype=np.int64), np.zeros(len(columns[0]), dtype=np.int64)
    for column in columns:
        values, _, of = distinct(column)
        _, rows, kind = distinct(kind * len(values) + of)
    return rows, kind
