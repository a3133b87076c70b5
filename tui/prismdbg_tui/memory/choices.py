"""How one looks at memory: grouped by what, and as a difference between which moments. Knows no widget."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from prismdbg.errors import UsageError
from prismdbg.model.moment import Moment
from prismdbg_tui.memory.reader import MemoryRequest
from prismdbg_tui.memory.view import GroupBy


@dataclass(frozen=True, slots=True)
class MemoryPlace:
    """`look`: where in the trace `at` is; None: at its end."""

    at: Moment
    look: Moment | None


class MemoryChoices:
    """`ask` is called when another view is wanted. `marked`: one end of a difference whose other end is still to be
    chosen. compared: both ends, which stay where they were chosen, wherever one looks since. of_a_step: the first
    one is the place of the other, a step before."""

    def __init__(self, ask: Callable[[], None]) -> None:
        self.by = GroupBy.STACK
        self.marked: Moment | None = None
        self.compared: tuple[Moment, MemoryPlace] | None = None
        self.of_a_step = False
        self._ask = ask

    def change_grouping(self) -> None:
        self.by = self.by.following
        self._ask()

    def mark(self, here: MemoryPlace) -> None:
        """One end, then the other, then none."""
        if self.compared is not None or self.marked == here.at:
            self.marked = self.compared = None
        elif self.marked is None:
            self.marked = here.at
        else:
            self.compared, self.of_a_step = (self.marked, here), False
            self.marked = None
        self._ask()

    def compare_with_a_step_before(self, here: MemoryPlace) -> None:
        """What is more at the same place than it was a step ago has leaked."""
        if not here.at.step:
            raise UsageError("no step before this one")
        self.marked, self.of_a_step = None, True
        self.compared = Moment(here.at.step - 1, here.at.collective, here.at.op), here
        self._ask()

    def forget(self) -> None:
        """Both ends."""
        self.marked = self.compared = None

    def in_words(self, key: str) -> str:
        """What `mark`, which is on `key`, led to."""
        if self.compared is not None:
            first, last = sorted((self.compared[0], self.compared[1].at))
            return f"memory: difference between {first} and {last}"
        if self.marked is not None:
            return f"memory: {self.marked} is marked; {key} at another collective compares with it"
        return "memory: all live memory at the cursor"

    def request(self, folder: Path | None, here: MemoryPlace | None) -> MemoryRequest:
        since = None
        if self.compared is not None:
            since, here = self.compared
        at, look = (here.at, here.look) if here is not None else (None, None)
        of_a_step = since is not None and self.of_a_step
        return MemoryRequest(
            folder=folder, at=at, look=look, since=since, of_a_step=of_a_step, by=self.by, marked=self.marked
        )
