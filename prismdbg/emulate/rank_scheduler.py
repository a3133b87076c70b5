"""Which emulated rank runs next, so that each gets what only another one can send it. Pure: it starts nothing.

One rank runs at a time. Where it lacks a value it stands, and the rank that sends it runs until it has: no further, so
that it sees in turn what others will say before it gets there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from prismdbg.errors import RankLost
from prismdbg.settings.emulation import STEP_KEY
from prismdbg.settings.missing_value import MissingValue as MissingValue


@dataclass(frozen=True, slots=True)
class Kept:
    """A rank stands: it has just sent the value that was asked for."""

    key: str


@dataclass(frozen=True, slots=True)
class Ended:
    """Its program came to its end."""


class NotSentError(RankLost):
    """No rank sends the value."""


Event = MissingValue | Kept | Ended
Go = Callable[[int, str, MissingValue | None], Event]


class RankScheduler:
    """`go(rank, until, since)` starts the rank, or lets it go on, until it has sent that value, lacks one, or ends.

    since: what somebody lacks, where that is why it runs.
    """

    def __init__(self, go: Go) -> None:
        self._go = go
        self._ended: set[int] = set()

    def complete(self, rank: int) -> None:
        """Until this rank's program has ended."""
        self._run(rank, "")

    def complete_in_rounds(self, ranks: Sequence[int], steps: int) -> None:
        """All of them, so many steps each before the next one goes on: a drift of the machine is in all of them. Every
        other round goes backwards."""
        number = 0
        while left := [rank for rank in ranks if rank not in self._ended]:
            number += 1
            for rank in left if number % 2 else reversed(left):
                self._run(rank, f"{STEP_KEY}{number * steps}")

    def _run(self, rank: int, until: str) -> None:
        """Until its program has ended, or has come to what `until` says."""
        last = ""
        while rank not in self._ended:
            event = self._step(rank, until, None)
            if until and event == Kept(until):
                return
            if isinstance(event, MissingValue):
                self._look_for(event, last, (rank,))
                last = event.key

    def supply(self, lacks: MissingValue) -> None:
        """For a rank that runs without a turn: returns once the sender has sent the value."""
        self._look_for(lacks, "", (lacks.rank,))

    def _look_for(self, lacks: MissingValue, last: str, waiting: tuple[int, ...]) -> None:
        try:
            self._supply(lacks, last, waiting)
        except NotSentError:
            if not lacks.is_optional:
                raise

    def _supply(self, lacks: MissingValue, last: str, waiting: tuple[int, ...]) -> None:
        """Runs the sender until it has sent the value. waiting: who waits for it, outermost first."""
        if lacks.source < 0:
            raise lost(lacks, "the sender is unknown")
        if lacks.key == last:
            raise lost(lacks, f"rank {lacks.source} sends data of another size")
        if lacks.source in waiting:
            raise lost(lacks, f"rank {lacks.source} itself waits for rank {lacks.rank}")
        last = ""
        while lacks.source not in self._ended:
            event = self._step(lacks.source, lacks.key, lacks)
            if event == Kept(lacks.key):
                return
            if isinstance(event, MissingValue):
                self._look_for(event, last, (*waiting, lacks.source))
                last = event.key
        raise lost(lacks, f"rank {lacks.source}'s program ended or passed this place without sending it")

    def _step(self, rank: int, until: str, since: MissingValue | None) -> Event:
        event = self._go(rank, until, since)
        if isinstance(event, Ended):
            self._ended.add(rank)
        return event


def lost(lacks: MissingValue, why: str) -> NotSentError:
    made_up = "" if lacks.caller else f", or set how it is synthesized: --peers {lacks.axis}:{lacks.collective}=zeros"
    return NotSentError(
        f"rank {lacks.rank} lacks a value that only its sender knows, {lacks.place}: {why}",
        hint=f"use an earlier run that has it (--donor RUN){made_up}",
    )
