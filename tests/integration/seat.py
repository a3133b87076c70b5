"""A debugger over a replay, in this process, and what it told."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from prismdbg.capsule.capsule_dir import Capsule
from prismdbg.debugger.debugger import Debugger, Settings, recorded_moments
from prismdbg.debugger.time_travel import Travel, open_travel
from prismdbg.jobs.replay.replay import ReplayRequest
from prismdbg.session import answers, notices

LOOKED_AT = ("out", "ddp.module.head.weight", "optimizer.state")


class Seat:
    """A debugger, and what it told."""

    def __init__(self, travel: Travel, spacing_s: float, spoken: list[str], looked_at: Sequence[str]) -> None:
        """`spoken`: what the travel says to a person."""
        self.travel = travel
        self.looked_at = looked_at
        self.spoken = spoken
        self.told: list[notices.Notice] = []
        self.debugger = Debugger(
            travel,
            self.told.append,
            end_record=travel.end_record,
            recorded=recorded_moments(travel),
            settings=Settings(bound_s=60.0, spacing_s=spacing_s),
        )
        self.debugger.begin()

    def at(self, line: str) -> str:
        answer = self.debugger.do(line)
        assert isinstance(answer, answers.Arrived), answer
        return str(answer.moment)

    def bits(self) -> tuple[str, ...]:
        """Digests of every byte of what is looked at here, and of all that was sent, received and drawn."""
        self.debugger.stack()
        session, client = self.debugger.session, self.travel.client
        found = [
            str(client.ask("evaluate", expression=text, frame=session.frame, digest=True)["value"]["digest"])
            for text in self.looked_at
        ]
        stop = session.stop
        assert stop is not None
        return (*found, *stop.place.values())

    def unlike(self) -> list[notices.Unlike]:
        return [notice for notice in self.told if isinstance(notice, notices.Unlike)]


@contextmanager
def seat(
    capsule: Path, runtime: str, spacing_s: float = 0.5, *, looked_at: Sequence[str] = LOOKED_AT
) -> Iterator[Seat]:
    request = ReplayRequest(capsule=Capsule.open(capsule), runtime=runtime)
    spoken: list[str] = []
    with open_travel(request, spoken.append) as travel:
        yield Seat(travel, spacing_s, spoken, looked_at)
