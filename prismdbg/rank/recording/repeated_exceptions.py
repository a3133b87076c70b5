"""Bounds what a rank notes of exceptions that come again: a library may lose a thread to its server every minute, and a
program may print an exception in each step, for months."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from prismdbg.capsule.log.notes import MOST_PLACES, raised_at

MOST_ALIKE = 8  # of one place, with their tracebacks
MOST_LINES = 16  # of the traceback, where the place has no number: any of these may be the one that ends the program


class RepeatedExceptions:
    """Each has a note, since it may be the one that ends the program, and a replay raises it again. Without a lock,
    which a forked child might find held: two threads at once may get the same number."""

    def __init__(self) -> None:
        self._places: dict[Hashable, int] = {}
        self._seen: dict[int, int] = {}

    def numbered(self, report: dict[str, Any]) -> dict[str, Any]:
        """Returns what `describe` says with the number of its place, and how many of that place there were so far;
        without the traceback after the first of these, which have the same. Without a number where there are too many
        places: then with the innermost frames."""
        place = self._place(raised_at(report))
        if place is None:
            return {**report, "traceback": report["traceback"][-MOST_LINES:]}
        self._seen[place] = nth = self._seen.get(place, 0) + 1
        kept = {name: value for name, value in report.items() if nth <= MOST_ALIKE or name != "traceback"}
        return {**kept, "place": place, "nth": nth}

    def _place(self, raised: Hashable) -> int | None:
        if raised not in self._places and len(self._places) < MOST_PLACES:
            self._places[raised] = len(self._places) + 1
        return self._places.get(raised)
