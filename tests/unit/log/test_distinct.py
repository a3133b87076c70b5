"""Small numbers are counted, others are sorted: both say what numpy says."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prismdbg.log import distinct as module
from prismdbg.log.distinct import distinct, kinds_of

NUMBERS = st.lists(st.integers(0, 50) | st.integers(-(2**62), 2**62), max_size=60)


@given(NUMBERS)
def test_it_says_what_numpy_says(numbers: list[int]) -> None:
    column = np.array(numbers, dtype=np.int64)
    expected = np.unique(column, return_index=True, return_inverse=True)
    assert all(np.array_equal(ours, theirs) for ours, theirs in zip(distinct(column), expected, strict=True))


def test_small_numbers_are_not_sorted(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = [found.tolist() for found in distinct(np.array([7, 3, 7, 0]))]
    monkeypatch.setattr(module.np, "unique", None)
    assert (
        expected
        == [found.tolist() for found in distinct(np.array([7, 3, 7, 0]))]
        == [[0, 3, 7], [3, 1, 0], [2, 1, 2, 0]]
    )


@given(st.lists(st.tuples(st.integers(-2, 3), st.integers(0, 2), st.integers(2**40, 2**40 + 1)), min_size=1))
def test_rows_that_are_equal_are_of_one_kind(rows: list[tuple[int, int, int]]) -> None:
    first, kind = kinds_of(*(np.array(column, dtype=np.int64) for column in zip(*rows, strict=True)))
    assert [rows[first[k]] for k in kind] == rows
    assert len(set(kind.tolist())) == len(first) == len(set(rows))
