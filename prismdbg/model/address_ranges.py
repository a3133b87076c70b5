"""What is left of address ranges after changes to them in pieces of any size and order."""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heappop, heappush
from typing import NamedTuple

Range = tuple[int, int]
_NO_CHANGE = 1  # orders are 0 and less


class Change(NamedTuple):
    """From `address` to before `end`: is there from now on, or no longer."""

    address: int
    end: int
    is_there: bool


def ranges_after(changes: Iterable[Change]) -> list[Range]:
    """(address, end) of each, by address; they do not overlap. Of an address the last change that covers it decides.
    What two changes made stays apart where it touches. n changes take n log n steps."""
    # The later a change is, the smaller is its order: a heap has the smallest first.
    pieces = [(-number, each) for number, each in enumerate(changes) if each.end > each.address]
    pieces.sort(key=lambda piece: piece[1].address)
    found = _Found()
    over: list[tuple[int, Change]] = []  # a heap of those that may cover `here`
    here = 0
    for order, change in pieces:
        _take(over, here, change.address, found)
        heappush(over, (order, change))
        here = change.address
    _take(over, here, max((change.end for _, change in pieces), default=here), found)
    return found.ranges


class _Found:
    def __init__(self) -> None:
        self.ranges: list[Range] = []
        self._last = _NO_CHANGE

    def add(self, address: int, end: int, order: int) -> None:
        """More of the last range, if it is of the same change and nothing lies between."""
        if self._last == order and self.ranges[-1][1] == address:
            address, _ = self.ranges.pop()
        self.ranges.append((address, end))
        self._last = order


def _take(over: list[tuple[int, Change]], here: int, until: int, found: _Found) -> None:
    """From `here` to `until` no change begins."""
    while over and here < until:
        order, change = over[0]
        if change.end <= here:
            heappop(over)
            continue
        stop = min(change.end, until)
        if change.is_there:
            found.add(here, stop, order)
        here = stop
