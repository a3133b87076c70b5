"""Ranges of addresses that do not overlap, in order: each is looked at once, when it is cut."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator

Range = tuple[int, int]


class AddressRanges:
    """As (address, end). What was added in pieces may be cut in others."""

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._ends: dict[int, int] = {}

    def __iter__(self) -> Iterator[Range]:
        return ((start, self._ends[start]) for start in self._starts)

    def add(self, address: int, end: int) -> None:
        self.cut(address, end)
        if end > address:
            insort(self._starts, address)
            self._ends[address] = end

    def cut(self, address: int, end: int) -> None:
        if end <= address:
            return
        starts, ends = self._starts, self._ends
        first = max(bisect_right(starts, address) - 1, 0)
        if first < len(starts) and ends[starts[first]] <= address:
            first += 1
        last = bisect_left(starts, end, lo=first)
        cut = [(start, ends.pop(start)) for start in starts[first:last]]
        left = [(start, address) for start, _ in cut[:1] if start < address]
        right = [(end, stop) for _, stop in cut[-1:] if stop > end]
        starts[first:last] = [start for start, _ in (*left, *right)]
        ends.update(left + right)
