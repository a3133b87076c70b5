"""While a replay runs, the rank is asked how far it is, where somebody looks on."""

from __future__ import annotations

from collections import deque
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from capsules import IMAGE, make_capsule

from prismdbg.errors import RankLost, WaitTimeout
from prismdbg.jobs.replay.replay import LiveReplay
from prismdbg.jobs.replay.replay_progress import LOOK_S, ReplayProgress
from prismdbg.model.meanwhile import unheard
from prismdbg.model.moment import Moment
from prismdbg.protocol.client import AgentError
from prismdbg.protocol.wire import InvalidMessage

EVENT = {"event": "note", "text": "hello"}


class Rank:
    """Is at each of these places in turn, when it is asked; then it tells its event. Each wait is over at once."""

    def __init__(self, *places: str | BaseException) -> None:
        self.places = deque(places)
        self.waits: list[float] = []

    def ask(self, verb: str, *, timeout_s: float) -> dict[str, Any]:
        assert verb == "progress" and timeout_s > 0
        place = self.places.popleft()
        if isinstance(place, BaseException):
            raise place
        return {"moment": place}

    def next_event(self, timeout_s: float, what: str) -> dict[str, Any]:
        self.waits.append(timeout_s)
        if self.places:
            raise WaitTimeout(f"waited for {what}")
        return EVENT


def progress(
    tmp_path: Path, rank: Rank, told: list[str] | None, *, until: Moment | None = None, first: int = 0, end: int = 5
) -> ReplayProgress:
    """Of a capsule with six collectives, two in each of three steps."""
    capsule = make_capsule(tmp_path / "capsule", IMAGE)
    live = SimpleNamespace(capsule=capsule, client=rank, first_record=first, end_record=end)
    tell = unheard if told is None else told.append
    seconds = count()  # each look at the clock is a second later
    return ReplayProgress(cast(LiveReplay, live), until, tell, lambda: float(next(seconds)))


def test_it_tells_how_many_collectives_are_done(tmp_path: Path) -> None:
    told: list[str] = []
    rank = Rank("0.0", "0.1", WaitTimeout("busy"), "1.1", AgentError("no"), "2.2.7", "9.9")
    assert progress(tmp_path, rank, told).next_event(1000.0) == EVENT
    assert told == [
        "replaying: collective 0 of 6, at 0.0",
        "replaying: collective 1 of 6, at 0.1",
        "replaying: collective 3 of 6, at 1.1",
        "replaying: collective 6 of 6, at 2.2.7",
        "replaying: collective 6 of 6, at 9.9",
    ]


def test_only_what_is_replayed_counts(tmp_path: Path) -> None:
    told: list[str] = []
    progress(tmp_path, Rank("0.0", "1.1", "2.2"), told, until=Moment(2, 1), first=2).next_event(1000.0)
    assert [text.partition(", at")[0] for text in told] == [
        "replaying: collective 0 of 3",
        "replaying: collective 1 of 3",
        "replaying: collective 3 of 3",
    ]


def test_where_nobody_looks_on_the_rank_is_not_asked(tmp_path: Path) -> None:
    rank = Rank("0.0")
    with pytest.raises(WaitTimeout):
        progress(tmp_path, rank, None).next_event(20.0)
    assert list(rank.places) == ["0.0"]


def test_a_wait_is_no_longer_than_it_was_asked_for(tmp_path: Path) -> None:
    rank = Rank(*["0.0"] * 100)
    with pytest.raises(WaitTimeout):
        progress(tmp_path, rank, None).next_event(2.5 * LOOK_S)
    assert 2 <= len(rank.waits) <= 3 and rank.waits[-1] < LOOK_S


def test_an_interrupt_is_not_held_up(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        progress(tmp_path, Rank(KeyboardInterrupt()), []).next_event(1000.0)


def test_what_a_rank_told_before_it_ended_is_still_to_be_taken(tmp_path: Path) -> None:
    """It ended while it was asked: its last event waits in the queue."""
    rank = Rank(RankLost("the rank closed its socket"))
    assert progress(tmp_path, rank, []).next_event(1000.0) == EVENT


def test_an_answer_that_is_none_is_no_rank_that_is_busy(tmp_path: Path) -> None:
    with pytest.raises(InvalidMessage):
        progress(tmp_path, Rank(InvalidMessage("no JSON")), []).next_event(1000.0)
