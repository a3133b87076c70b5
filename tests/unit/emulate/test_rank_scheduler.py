"""Which emulated rank runs next, with ranks that are only played."""

from __future__ import annotations

from typing import Any

import pytest

from prismdbg.emulate.rank_scheduler import Ended, Event, Kept, MissingValue, RankScheduler
from prismdbg.errors import RankLost
from prismdbg.settings.emulation import step_of

Program = list[tuple[str, str, int]]  # ("send", key, -1), ("recv", key, from) or ("see", key, -1)


class Job:
    """Ranks as lists of sends and receives. `see` notes which keys are there when a rank comes by."""

    def __init__(self, programs: dict[int, Program]) -> None:
        self._programs = programs
        self._at: dict[int, int] = {}
        self.kept: set[str] = set()
        self.started: list[int] = []
        self.seen: set[str] = set()

    def go(self, rank: int, until: str, since: MissingValue | None) -> Event:
        if rank not in self._at:
            self._at[rank] = 0
            self.started.append(rank)
        for at in range(self._at[rank], len(self._programs[rank])):
            kind, key, peer = self._programs[rank][at]
            self._at[rank] = at + 1
            if kind == "send":
                self.kept.add(key)
                if key == until:
                    return Kept(key)
            elif kind == "see":
                self.seen |= {key} & self.kept
            elif key not in self.kept:
                self._at[rank] = at
                words: Any = {"collective": "recv", "axis": "pp", "identity": key, "where": "train.py:3"}
                return MissingValue(rank=rank, source=peer, key=key, **words)
        return Ended()

    def has_ended(self, rank: int) -> bool:
        return self._at[rank] == len(self._programs[rank])


def test_a_rank_that_lacks_nothing_runs_alone() -> None:
    job = Job({0: [("send", "a", -1)], 1: []})
    RankScheduler(job.go).complete(0)
    assert job.started == [0]
    assert job.has_ended(0)


def test_the_sender_runs_until_it_has_sent_and_no_further() -> None:
    job = Job({0: [("send", "a", -1), ("send", "b", -1)], 5: [("recv", "a", 0)]})
    RankScheduler(job.go).complete(5)
    assert job.started == [5, 0]
    assert job.has_ended(5)
    assert job.kept == {"a"}


def test_the_root_sees_what_the_other_said_before_it_asked() -> None:
    """As a checkpoint: all say what they have, the root says what to do with it."""
    asker: Program = [("recv", "folder", 0), ("send", "plan", -1), ("recv", "whole plan", 0)]
    root: Program = [("send", "folder", -1), ("see", "plan", -1), ("send", "whole plan", -1)]
    job = Job({0: root, 5: asker})
    RankScheduler(job.go).complete(5)
    assert job.seen == {"plan"}


def test_two_that_need_each_other_in_turn_both_go_on() -> None:
    asker: Program = [("send", "a", -1), ("recv", "b", 0), ("send", "c", -1), ("recv", "d", 0)]
    root: Program = [("recv", "a", 5), ("send", "b", -1), ("recv", "c", 5), ("send", "d", -1)]
    job = Job({0: root, 5: asker})
    scheduler = RankScheduler(job.go)
    scheduler.complete(5)
    scheduler.complete(0)
    assert job.has_ended(0)
    assert job.has_ended(5)


def test_each_stage_of_a_pipeline_is_started_once() -> None:
    """A vote down the pipeline, its result back up, then metadata down: from the middle of it."""
    last = 15
    programs: dict[int, Program] = {}
    for stage in range(last + 1):
        vote: Program = ([("recv", f"v{stage}", stage - 1)] if stage else []) + [("send", f"v{stage + 1}", -1)]
        result: Program = ([("recv", f"r{stage}", stage + 1)] if stage < last else []) + [("send", f"r{stage - 1}", -1)]
        meta: Program = ([("recv", f"m{stage}", stage - 1)] if stage else []) + [("send", f"m{stage + 1}", -1)]
        programs[stage] = vote + result + meta
    job = Job(programs)
    RankScheduler(job.go).complete(8)
    assert job.has_ended(8)
    assert sorted(job.started) == list(range(last + 1))


@pytest.mark.parametrize(
    ("programs", "why"),
    [
        ({0: [], 5: [("recv", "a", 0)]}, "rank 0's program ended"),
        ({5: [("recv", "a", -1)]}, "the sender is unknown"),
        ({0: [("recv", "b", 5)], 5: [("recv", "a", 0)]}, "rank 5 itself waits for rank 0"),
    ],
)
def test_a_value_that_does_not_come_is_an_error_that_names_all(programs: dict[int, Program], why: str) -> None:
    job = Job(programs)
    with pytest.raises(RankLost, match=why) as raised:
        RankScheduler(job.go).complete(5)
    assert "recv on pp" in str(raised.value)
    assert "train.py:3" in str(raised.value)
    assert "--donor" in raised.value.hint
    assert "pp:recv=zeros" in raised.value.hint


def test_a_value_that_comes_and_does_not_fit_is_an_error() -> None:
    def go(rank: int, until: str, since: MissingValue | None) -> Event:
        if rank == 0:
            return Kept(until)
        return MissingValue(rank=5, source=0, key="a", collective="recv", axis="pp", identity="a")

    with pytest.raises(RankLost, match="another size"):
        RankScheduler(go).complete(5)


def test_an_object_is_not_offered_to_be_made_up() -> None:
    def go(rank: int, until: str, since: MissingValue | None) -> Event:
        words: Any = {"collective": "broadcast", "axis": "world", "identity": "#1", "caller": "broadcast_object_list"}
        return MissingValue(rank=5, source=-1, key="a", **words)

    with pytest.raises(RankLost, match="broadcast_object_list on world") as raised:
        RankScheduler(go).complete(5)
    assert "--peers" not in raised.value.hint


def test_a_value_that_nobody_sends_blames_nobody() -> None:
    """As under the policy `donor` where no run was given: what all make together has no key and no sender."""
    with pytest.raises(RankLost, match="the sender is unknown"):
        RankScheduler(Job({0: [("recv", "", -1)]}).go).complete(0)


def test_what_a_rank_can_do_without_is_looked_for_and_left_where_nobody_sends_it() -> None:
    def go(rank: int, until: str, since: MissingValue | None) -> Event:
        asked.append((rank, until))
        if rank == 0 and len(asked) == 1:
            words = {"collective": "all_reduce", "axis": "ep", "identity": "a"}
            return MissingValue(rank=0, source=1, key="a", is_optional=True, **words)
        return Ended()

    asked: list[tuple[int, str]] = []
    RankScheduler(go).complete(0)
    assert asked == [(0, ""), (1, "a"), (0, "")]


class TestRounds:
    def played(self, steps: dict[int, int]) -> tuple[list[tuple[int, int]], RankScheduler]:
        """Ranks of so many steps, from 0; which rank ran which step. It stands before a step that it is not to run."""
        at = dict.fromkeys(steps, 0)
        ran: list[tuple[int, int]] = []

        def go(rank: int, until: str, _: MissingValue | None) -> Event:
            while at[rank] < min(steps[rank], step_of(until)):
                ran.append((rank, at[rank]))
                at[rank] += 1
            return Ended() if at[rank] == steps[rank] else Kept(until)

        return ran, RankScheduler(go)

    def test_ranks_run_a_few_steps_in_turn_there_and_back(self) -> None:
        ran, scheduler = self.played({0: 7, 1: 7})
        scheduler.complete_in_rounds((0, 1), 3)
        assert [rank for rank, _ in ran] == [0] * 3 + [1] * 6 + [0] * 4 + [1]
        assert sorted(ran) == [(rank, step) for rank in (0, 1) for step in range(7)]

    def test_one_that_ends_earlier_leaves_the_others(self) -> None:
        ran, scheduler = self.played({0: 2, 1: 9})
        scheduler.complete_in_rounds((0, 1), 3)
        assert len(ran) == 11
        scheduler.complete(0)
        assert len(ran) == 11
