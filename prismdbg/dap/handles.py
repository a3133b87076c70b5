"""Numbers that a client gets for things, and gives back to ask more of them."""

from __future__ import annotations

from typing import Generic, TypeVar

from prismdbg.errors import UsageError

MOST = 100_000

T = TypeVar("T")


class Handles(Generic[T]):
    """Numbers are given once and never again: one of an earlier stop is refused. `what`: for the error."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._kept: dict[int, T] = {}
        self._next = 1

    def add(self, thing: T) -> int:
        if len(self._kept) >= MOST:
            raise UsageError(f"more than {MOST} {self._what}s at one stop", hint="go on to the next stop")
        number = self._next
        self._next += 1
        self._kept[number] = thing
        return number

    def get(self, number: int) -> T:
        if number not in self._kept:
            raise UsageError(f"no {self._what} {number} here", hint="ask for them again: the rank has moved")
        return self._kept[number]

    def clear(self) -> None:
        self._kept.clear()
