"""Address ranges after many changes: what a page at a time would give, and how much work it is."""

from __future__ import annotations

import bisect
import heapq
from itertools import groupby
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prismdbg.importers import memory_snapshot
from prismdbg.model import address_ranges
from prismdbg.model.address_ranges import Change, ranges_after

PIECES = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 12), st.booleans()), max_size=40)


@given(PIECES)
def test_the_last_change_that_covers_an_address_decides(pieces: list[tuple[int, int, bool]]) -> None:
    changes = [Change(address, address + size, is_there) for address, size, is_there in pieces]
    made: list[int | None] = [None] * 64  # by address the change that made it
    for number, change in enumerate(changes):
        for address in range(change.address, change.end):
            made[address] = number if change.is_there else None
    runs = [(number, list(run)) for number, run in groupby(range(64), key=made.__getitem__)]
    assert ranges_after(changes) == [(run[0], run[-1] + 1) for number, run in runs if number is not None]


class Work:
    """Counts what sorted lists and heaps move: where one inserts, all that lies behind it."""

    def __init__(self) -> None:
        self.moved = 0

    def insort(self, into: list[Any], value: Any) -> None:
        self.moved += len(into) - bisect.bisect_right(into, value) + 1
        bisect.insort(into, value)

    def heappush(self, heap: list[Any], value: Any) -> None:
        self.moved += len(heap).bit_length() + 1
        heapq.heappush(heap, value)

    def heappop(self, heap: list[Any]) -> Any:
        self.moved += len(heap).bit_length()
        return heapq.heappop(heap)


@pytest.mark.parametrize("step", [1, -1])
def test_four_times_as_many_entries_are_about_four_times_the_work(monkeypatch: pytest.MonkeyPatch, step: int) -> None:
    moved = [_moved(monkeypatch, 2000, step), _moved(monkeypatch, 8000, step)]
    assert moved[0] >= 2000 and moved[1] < 6 * moved[0], f"{moved} elements moved"


def _moved(monkeypatch: pytest.MonkeyPatch, count: int, step: int) -> int:
    """By what a snapshot's segments were before `count` frees of them, by address upwards or downwards."""
    work = Work()
    for name in ("insort", "heappush", "heappop"):
        monkeypatch.setattr(address_ranges, name, getattr(work, name), raising=False)
    entries: list[Any] = [{"action": "segment_free", "addr": at * 4096, "size": 2048} for at in range(count)][::step]
    before = list(memory_snapshot._reserved_before(entries, []))
    assert before == [(at * 4096, at * 4096 + 2048) for at in range(count)]
    return work.moved
