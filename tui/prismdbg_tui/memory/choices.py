"""How one looks at memory: grouped by what, and since when. Asks for a view; knows no widget."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from prismdbg.errors import UsageError
from prismdbg.model.moment import Moment
from prismdbg_tui.memory.reader import MemoryRequest
from prismdbg_tui.memory.view import GroupBy


class MemoryChoices:
    """`ask` is called when another view is wanted."""

    def __init__(self, ask: Callable[[], None]) -> None:
        self.by = GroupBy.STACK
        self.since: Moment | None = None
        self._ask = ask

    def change_grouping(self) -> None:
        self.by = self.by.following
        self._ask()

    def change_mark(self, moment: Moment) -> None:
        self.since = moment if self.since is None else None
        self._ask()

    def mark_a_step_before(self, moment: Moment) -> None:
        """What is more at the same place than it was a step ago has leaked."""
        if not moment.step:
            raise UsageError("no step before this one")
        self.since = Moment(moment.step - 1, moment.collective)
        self._ask()

    def request(self, folder: Path | None, at: Moment | None) -> MemoryRequest:
        return MemoryRequest(folder=folder, at=at, look=at, since=self.since, by=self.by)
