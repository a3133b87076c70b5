"""In which order emulated ranks run, so that each finds what only another one can send it. Pure: it starts nothing.

A run ends early where it lacks a value. Then the rank that sends it runs, which may lack something in turn; what each
has sent until it stopped is kept, so every new run gets further.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from prismdbg.errors import RankLost

Lacking = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """A run of `rank`. wanted: for these ranks it keeps what they alone receive. since: why it runs, if not asked."""

    rank: int
    wanted: frozenset[int]
    since: Lacking | None = None


class Turns:
    """`run` gives what the run lacked, or nothing when the program came to its end."""

    def __init__(self, asked: tuple[int, ...], run: Callable[[Turn], Lacking | None]) -> None:
        self._run = run
        self._wanted = frozenset(asked)
        self._whole: dict[int, frozenset[int]] = {}  # ranks that came to their end, and for whom

    def complete(self, rank: int, waiting: tuple[int, ...] = (), since: Lacking | None = None) -> None:
        """Until the rank's program came to its end. `waiting`: the ranks that wait for this one, outermost first."""
        self._wanted |= {rank, *waiting}
        if rank in self._whole and self._whole[rank] >= {rank, *waiting}:
            return
        seen: set[str] = set()
        while True:
            lacking = self._run(Turn(rank=rank, wanted=self._wanted, since=since))
            if lacking is None:
                self._whole[rank] = self._wanted
                return
            source = int(lacking["source"])
            if source in waiting:
                return  # it waits for this very rank: what was sent up to here has to do
            if source < 0 or lacking["key"] in seen:
                raise unknown(lacking)
            seen.add(lacking["key"])
            if source != rank:
                self.complete(source, (*waiting, rank), lacking)


def place(lacking: Lacking) -> str:
    call = lacking["caller"] or lacking["collective"]
    where = f" at {lacking['where']}" if lacking.get("where") else ""
    return f"{call} on {lacking['axis']} ({lacking['identity']}){where}"


def unknown(lacking: Lacking) -> RankLost:
    source = int(lacking["source"])
    whose = f"rank {source}, which was run and did not send it" if source >= 0 else "a rank that cannot be named"
    made_up = f"--peers {lacking['axis']}:{lacking['collective']}=zeros"
    return RankLost(
        f"rank {lacking['rank']} lacks a value that only its sender knows, {place(lacking)}: it comes from {whose}",
        hint=f"give an earlier run that has it (--donor RUN), or say how it is made up: {made_up}",
    )
