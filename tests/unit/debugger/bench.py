"""A debugger over a simulated rank, and what it told."""

from __future__ import annotations

from typing import Any

from prismdbg.debugger.debugger import Debugger, Settings
from prismdbg.session import answers, notices
from tests.unit.simulated_rank import SimulatedRank


class Bench:
    """A debugger, its rank, and what it told."""

    def __init__(self, spacing_s: float = 1000.0, most: int = 24, **rank: Any) -> None:
        self.rank = SimulatedRank(**rank)
        self.told: list[notices.Notice] = []
        settings = Settings(bound_s=0.05, spacing_s=spacing_s, most=most)
        self.debugger = Debugger(self.rank, self.told.append, recorded=self.rank.moments, settings=settings)
        self.debugger.begin()

    def at(self, line: str) -> str:
        """Where the rank stands after this line."""
        answer = self.debugger.do(line)
        assert isinstance(answer, answers.Arrived), answer
        return str(answer.moment) if answer.stop is not None else str(answer.phase)

    def of(self, kind: type) -> list[Any]:
        return [notice for notice in self.told if isinstance(notice, kind)]
