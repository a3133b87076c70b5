"""Ranks that run at once, played by fakes that say what they are told to: who is woken, for whom another one runs."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, cast

import pytest

from prismdbg.emulate.emulated_rank import EmulatedRank
from prismdbg.emulate.kept_values import KeptValues
from prismdbg.emulate.rank_scheduler import Ended, Event, Kept, MissingValue, RankScheduler
from prismdbg.emulate.together import RanksAtOnce
from prismdbg.errors import RankLost, WaitTimeout
from prismdbg.settings.emulation import STORE_KEY

Turn = tuple[str, Event | Exception | None]  # the value that it keeps before, or none; what it says, None if it hangs
Turns = dict[int, list[Turn]]
END: Turn = ("", Ended())


def lacks(rank: int, source: int, key: str, collective: str = "recv", **more: Any) -> MissingValue:
    return MissingValue(rank=rank, source=source, key=key, collective=collective, axis="pp", identity=key, **more)


class FakeRank:
    """A fake of `EmulatedRank`: its turns are written down beforehand."""

    def __init__(self, folder: Path, rank: int, turns: list[Turn]) -> None:
        self.rank, self.wall_s, self.taken = rank, 0.0, 0
        self.standing = f"is in all_reduce at train.py:{rank}"
        self.failed_at = True, 0
        self._folder, self._turns = folder, turns
        self.hear_fd, self._say_fd = os.pipe()

    def open_end(self) -> int:
        return os.dup(self.hear_fd)

    def give_turn(self) -> None:
        kept, event = self._turns[self.taken]
        self.taken += 1
        if kept:
            keep(self._folder, self.rank, kept)
        if event is not None:
            os.write(self._say_fd, b".")

    def event(self) -> Event:
        os.read(self.hear_fd, 1)
        event = self._turns[self.taken - 1][1]
        if isinstance(event, Exception):
            raise event
        assert event is not None
        return event


def keep(folder: Path, rank: int, key: str) -> None:
    with (folder / f"{rank}.jsonl").open("a") as file:
        file.write(json.dumps({"key": key}) + "\n")


class Job:
    """`first`: what rank 9, which runs alone, says when it is started; then it sends whatever it is asked for."""

    def __init__(self, folder: Path, turns: Turns, *, first: Event | None = None, bound_s: float = 20.0) -> None:
        self.ranks = {rank: FakeRank(folder, rank, own) for rank, own in turns.items()}
        self.alone: list[int] = []
        self._folder, self._first = folder, first
        self._at_once = RanksAtOnce(self._give, self._go, KeptValues(folder), bound_s)

    def _give(self, rank: int) -> EmulatedRank:
        self.ranks[rank].give_turn()
        return cast(EmulatedRank, self.ranks[rank])

    def _go(self, rank: int, until: str, since: MissingValue | None) -> Event:
        self.alone.append(rank)
        if self._first is not None and self.alone.count(9) == 1 and rank == 9:
            return self._first
        keep(self._folder, rank, until)
        return Kept(until)

    def complete(self) -> None:
        self._at_once.complete(tuple(self.ranks), RankScheduler(self._at_once.go).supply)


def test_they_run_to_their_ends_without_another_turn(tmp_path: Path) -> None:
    job = Job(tmp_path, {0: [END], 1: [END]})
    job.complete()
    assert [rank.taken for rank in job.ranks.values()] == [1, 1]
    assert all(rank.wall_s > 0 for rank in job.ranks.values())


def test_a_rank_outside_runs_for_what_one_of_them_lacks(tmp_path: Path) -> None:
    job = Job(tmp_path, {0: [("", lacks(0, 9, "a")), END], 1: [END]})
    job.complete()
    assert job.alone == [9]


def test_it_does_not_run_again_for_what_it_has_sent(tmp_path: Path) -> None:
    job = Job(tmp_path, {0: [("", lacks(0, 9, "a")), END], 1: [("", lacks(1, 9, "a")), END]})
    job.complete()
    assert job.alone == [9]


def test_who_lacks_what_a_partner_sends_waits_for_it(tmp_path: Path) -> None:
    waits: list[Turn] = [("", lacks(0, 1, "a")), END]
    sends: list[Turn] = [("", lacks(1, 9, "b")), ("a", Ended())]
    job = Job(tmp_path, {0: waits, 1: sends})
    job.complete()
    assert [rank.taken for rank in job.ranks.values()] == [2, 2]
    assert job.alone == [9]


def test_a_rank_that_runs_alone_gets_what_one_of_them_sends(tmp_path: Path) -> None:
    job = Job(
        tmp_path,
        {0: [("", lacks(0, 9, "a")), END], 1: [("b", Ended())]},
        first=lacks(9, 1, "b"),
    )
    job.complete()
    assert job.alone == [9, 9]


def test_a_key_that_a_rank_outside_does_not_set_may_be_a_partners(tmp_path: Path) -> None:
    """Rank 9 runs to its end without it; rank 1 sets it later."""
    waits: list[Turn] = [("", lacks(0, 9, "a", STORE_KEY)), END]
    sets: list[Turn] = [("", lacks(1, 8, "b")), ("a", Ended())]
    job = Job(tmp_path, {0: waits, 1: sets}, first=Ended())
    job.complete()
    assert [rank.taken for rank in job.ranks.values()] == [2, 2] and sorted(job.alone) == [8, 9]


@pytest.mark.parametrize(("collective", "waits"), [(STORE_KEY, True), ("recv", False)])
def test_what_nobody_sets_is_an_error_and_only_a_key_is_waited_for(
    collective: str, waits: bool, tmp_path: Path
) -> None:
    job = Job(tmp_path, {0: [("", lacks(0, 9, "a", collective))], 1: [END]}, first=Ended())
    with pytest.raises(RankLost, match="lacks a value that only its sender knows") as caught:
        job.complete()
    assert ("the ranks that run with it have ended without sending it" in str(caught.value)) is waits


@pytest.mark.parametrize(
    ("turns", "named"),
    [
        ({0: [("", lacks(0, 1, "a"))], 1: [END]}, "the ranks that run with it have ended without sending it"),
        ({0: [("", lacks(0, 1, "a"))], 1: [("", lacks(1, 0, "b"))]}, "which runs with it, itself lacks recv on pp"),
        ({0: [("", lacks(0, 9, "a")), ("", lacks(0, 9, "a"))], 1: [END]}, "rank 9 sends data of another size"),
    ],
)
def test_a_value_that_nobody_sends_is_named(turns: Turns, named: str, tmp_path: Path) -> None:
    job = Job(tmp_path, turns)
    with pytest.raises(RankLost, match="lacks a value that only its sender knows") as caught:
        job.complete()
    assert named in str(caught.value)


def test_one_that_can_do_without_goes_on_once_nobody_sends_it(tmp_path: Path) -> None:
    job = Job(tmp_path, {0: [("", lacks(0, 1, "a", is_optional=True)), END], 1: [END]})
    job.complete()
    assert job.ranks[0].taken == 2


def test_a_circle_of_a_rank_outside_and_one_of_them_is_an_error(tmp_path: Path) -> None:
    job = Job(tmp_path, {0: [("", lacks(0, 9, "a"))], 1: [("", None)]}, first=lacks(9, 0, "b"))
    with pytest.raises(RankLost, match="rank 0 itself waits for"):
        job.complete()


def test_ranks_that_wait_for_each_other_are_named_with_their_lines(tmp_path: Path) -> None:
    job = Job(tmp_path, {0: [("", None)], 1: [("", None)]}, bound_s=0.2)
    with pytest.raises(WaitTimeout) as caught:
        job.complete()
    assert "rank 0 is in all_reduce at train.py:0; rank 1 is in all_reduce at train.py:1" in str(caught.value)


def test_a_failure_names_who_had_ended_before(tmp_path: Path) -> None:
    job = Job(tmp_path, {0: [("", lacks(0, 1, "a")), ("", RankLost("rank 0 failed", hint="see"))], 1: [("a", Ended())]})
    with pytest.raises(RankLost) as caught:
        job.complete()
    assert str(caught.value) == "rank 0 failed. Rank 1, which ran at the same time, had already ended"
    assert caught.value.hint == "see"


def test_where_all_stand_the_one_that_can_do_without_goes_on(tmp_path: Path) -> None:
    needs: list[Turn] = [("", lacks(0, 1, "a")), END]
    does_without: list[Turn] = [("", lacks(1, 0, "b", is_optional=True)), ("a", Ended())]
    job = Job(tmp_path, {0: needs, 1: does_without})
    job.complete()
    assert [rank.taken for rank in job.ranks.values()] == [2, 2]
