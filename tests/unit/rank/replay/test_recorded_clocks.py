"""Clocks of a replayed rank: a read is given what the recorded rank read there."""

from __future__ import annotations

import time

import pytest

from prismdbg.capsule.log.clock_reads import BEGIN, At, ClockReads, Read
from prismdbg.rank.program.clocks import Clock, Site
from prismdbg.rank.replay.recorded_clocks import RecordedClocks

CLOCK, COUNTER, WHOLE = Clock("time"), Clock("perf_counter"), Clock("time_ns")
STEP, LOG = Site("/job/train.py", "step", 10), Site("/job/train.py", "log", 20)


class Rank:
    def __init__(self, *records: ClockReads, at: At = (1, 0), past: int = 0, early: list[Read] | None = None) -> None:
        self.at = BEGIN
        self.clocks = RecordedClocks(early or [])
        self.go_on = lambda: self.clocks.go_on(records, lambda: self.at, lambda: False, at, past)
        if early is None:
            self.go_on()

    def read(self, site: Site = STEP, clock: Clock = CLOCK) -> float:
        return float(self.clocks.read(clock, site))


def reads(at: At, *values: float, site: Site = STEP, number: int = 0, clock: str = "time") -> ClockReads:
    return ClockReads(at, number, [Read(clock, site.number, site.line, value) for value in values])


def test_in_their_order_at_each_moment() -> None:
    rank = Rank(reads((1, 0), 5.0, 6.0), reads((1, 2), 7.0))
    rank.at = (1, 0)
    assert [rank.read(), rank.read()] == [5.0, 6.0]
    rank.at = (1, 2)
    assert rank.read() == 7.0


def test_what_is_read_less_often_does_not_shift_later_moments() -> None:
    rank = Rank(reads((1, 0), 5.0, 6.0, 7.0), reads((2, 0), 8.0))
    rank.at = (1, 0)
    rank.read()
    rank.at = (2, 0)
    assert rank.read() == 8.0


def test_each_function_and_clock_has_its_own() -> None:
    both = [
        *reads((1, 0), 5.0).reads,
        *reads((1, 0), 6.0, site=LOG).reads,
        *reads((1, 0), 0.25, clock="perf_counter").reads,
    ]
    rank = Rank(ClockReads((1, 0), 0, both))
    rank.at = (1, 0)
    assert [rank.read(LOG), rank.read(clock=COUNTER), rank.read()] == [6.0, 0.25, 5.0]


def test_one_that_is_not_recorded_goes_on_from_the_last() -> None:
    rank = Rank(reads((1, 0), 5.0))
    rank.at = (1, 0)
    rank.read()
    assert 5.0 <= rank.read() < 60.0
    assert 5e9 <= rank.read(clock=WHOLE) < 60e9
    assert abs(rank.read(clock=COUNTER) - time.perf_counter()) < 60
    assert list(rank.clocks.not_recorded) == [
        "train.py:10 time.time", "train.py:10 time.time_ns", "train.py:10 time.perf_counter",
    ]  # fmt: skip


def test_a_replay_that_begins_later_takes_the_value_of_its_line() -> None:
    """A state snapshot is of the step's end; the replay goes on at the beginning of the loop."""
    end = STEP._replace(line=15)
    rank = Rank(ClockReads((1, 0), 0, [*reads((1, 0), 5.0, site=end).reads, *reads((1, 0), 6.0).reads]))
    rank.at = (1, 0)
    assert rank.read() == 6.0


def test_an_edited_function_takes_them_in_their_order() -> None:
    rank = Rank(reads((1, 0), 5.0, 6.0))
    rank.at = (1, 0)
    assert [rank.read(STEP._replace(line=line)) for line in (11, 12)] == [5.0, 6.0]


@pytest.mark.parametrize("past", [0, 1, 3])
def test_a_restored_rank_has_read_some_of_its_moment(past: int) -> None:
    rank = Rank(reads((1, 0), 5.0, 6.0), reads((1, 0), 7.0, 8.0, number=2), reads((2, 0), 9.0), past=past)
    rank.at = (1, 0)
    assert [rank.read() for _ in range(4 - past)] == [5.0, 6.0, 7.0, 8.0][past:]
    rank.at = (2, 0)
    assert rank.read() == 9.0


def test_those_from_before_the_log_come_first() -> None:
    early = [Read("time", STEP.number, STEP.line, 1.0), Read("time", STEP.number, STEP.line, 2.0)]
    rank = Rank(reads(BEGIN, 3.0, number=2), early=early)
    assert rank.read() == 1.0
    rank.go_on()
    assert [rank.read(), rank.read()] == [2.0, 3.0]


def test_what_the_debugger_computes_takes_none() -> None:
    rank = Rank(reads((1, 0), 5.0))
    rank.at = (1, 0)
    rank.clocks.is_quiet = lambda: True
    assert abs(rank.read() - time.time()) < 60
    rank.clocks.is_quiet = lambda: False
    assert rank.read() == 5.0
