"""When a replay must have ended: one bound for all of its parts."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TypeVar

from prismdbg.errors import WaitTimeout

Item = TypeVar("Item")


@dataclass(frozen=True, slots=True, kw_only=True)
class Deadline:
    """at_s: of `time.monotonic()`. bound_s: what the user allows for the whole, and `hint`, how to allow more: both for
    messages."""

    at_s: float = math.inf
    bound_s: float = math.inf
    hint: str = "give a longer --timeout"

    @classmethod
    def after(cls, bound_s: float) -> Deadline:
        return cls(at_s=time.monotonic() + bound_s, bound_s=bound_s)

    def left_s(self, most_s: float = math.inf) -> float:
        """Not below zero, and not more than `most_s`."""
        return max(min(self.at_s - time.monotonic(), most_s), 0.0)

    def require(self, doing: str) -> None:
        """`WaitTimeout` where it is over. doing: what is not complete, with its article."""
        if time.monotonic() > self.at_s:
            what = f"the replay did not reach its end within {self.bound_s:g} s: {doing} was not complete"
            raise WaitTimeout(what, hint=self.hint)

    def each(self, items: Iterable[Item], doing: str) -> Iterator[Item]:
        """The items, and `require` before each of them."""
        for item in items:
            self.require(doing)
            yield item


NEVER = Deadline()
