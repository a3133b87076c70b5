"""The rank as threads of the protocol: the one that issues the collectives, which moves, and others, only looked at."""

from __future__ import annotations

from prismdbg.dap.motion import THREAD
from prismdbg.debugger.inspection import Inspection, OtherThread
from prismdbg.errors import UsageError
from prismdbg.model.collective import Frame
from prismdbg.protocol.client import RankRuns, UnknownRequest


class Threads:
    """Numbers of a client for the program's other threads; a thread keeps its number."""

    def __init__(self, inspection: Inspection, title: str) -> None:
        self._inspection, self._title = inspection, title
        self._numbers: dict[int, int] = {}  # of a client, by the rank's
        self._others: dict[int, OtherThread] = {}

    def forget(self) -> None:
        self._others.clear()

    def names(self, *, is_stopped: bool) -> dict[int, str]:
        """By number. A rank that runs, or one of an older version, has one."""
        self._others = self._asked() if is_stopped else {}
        others = {number: thread.name or f"thread {thread.number}" for number, thread in self._others.items()}
        return {THREAD: self._title, **others}

    def frames(self, number: int) -> tuple[Frame, ...]:
        """Of another thread, as it was when the threads were listed."""
        if number not in self._others:
            raise UsageError(f"no thread {number} here", hint="ask for the threads again: the rank has moved")
        return self._others[number].frames

    def _asked(self) -> dict[int, OtherThread]:
        try:
            found = self._inspection.other_threads()
        except (UnknownRequest, RankRuns):
            return {}
        return {self._numbers.setdefault(each.number, THREAD + 1 + len(self._numbers)): each for each in found}
