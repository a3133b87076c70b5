"""Numbers along a line: those of one stride, never one over the other."""

from __future__ import annotations

from itertools import pairwise

import pytest

from prismdbg.model.labels import labelled, stride


def along(*cells: int, first: int = 0) -> list[tuple[int, int, str]]:
    return [(first + number, cell, str(first + number)) for number, cell in enumerate(cells)]


@pytest.mark.parametrize(
    ("places", "shown"),
    [
        (along(0, 10, 20), ["0", "1", "2"]),
        (along(0, 10, 12, 30, 40), ["0", "2", "4"]),  # 1 fits, but then 3 would be expected, too
        (along(*range(40)), ["0", "5", "10", "15", "20", "25", "30", "35"]),
        (along(0, 1, first=7), ["8"]),
        ([(7, 0, "7"), (9, 1, "9")], ["7"]),
        (along(10, 48, first=48211), ["48211"]),  # the second would end after the line
        ([(0, 0, "0"), (0, 1, "0")], ["0"]),
        (along(-1, 5, 60), ["1"]),
        ([], []),
    ],
)
def test_labels_are_of_one_stride_and_apart(places: list[tuple[int, int, str]], shown: list[str]) -> None:
    found = labelled(places, 50, 2)
    assert list(found.values()) == shown
    cells = list(found)
    assert all(after - before >= len(found[before]) + 2 for before, after in pairwise(cells))


def test_strides() -> None:
    assert [stride(least) for least in (0.1, 1, 1.5, 2.5, 6, 11, 51)] == [1, 1, 2, 5, 10, 20, 100]
