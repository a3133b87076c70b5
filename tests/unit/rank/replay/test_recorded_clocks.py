"""Clocks of a replayed rank: a read is given what the recorded rank read there."""

from __future__ import annotations

import time
from collections.abc import Iterable

import pytest

from prismdbg.capsule.log.clock_reads import BEGIN, At, ClockRead, Read
from prismdbg.rank.program import clocks
from prismdbg.rank.program.clocks import Clock, Site
from prismdbg.rank.replay.recorded_clocks import CATCHES_UP_S, RecordedClocks

CLOCK, COUNTER, WHOLE, UPTIME = (Clock(name) for name in ("time", "perf_counter", "time_ns", "monotonic"))


def site(line: int, function: str = "step", caller: int = 90) -> Site:
    return Site((("/job/train.py", function, line), ("/job/train.py", "<module>", caller)))


STEP, LOG = site(10), site(20, "log")


class Rank:
    def __init__(
        self, *records: ClockRead, past: int = 0, early: Iterable[Read] = (), edited: tuple[str, ...] = ()
    ) -> None:
        self.at = BEGIN
        self.clocks = RecordedClocks(early, edited)
        self.clocks.go_on(lambda: self.at, lambda: False)
        self.clocks.add(records, (1, 0), past)

    def read(self, place: Site = STEP, clock: Clock = CLOCK) -> float:
        return float(self.clocks.read(clock, place))


def read(value: float, place: Site = STEP, at: At = (1, 0), number: int = 0, clock: str = "time") -> ClockRead:
    return ClockRead(at, number, Read(clock, place.function, place.place, value))


def at_step(*records: ClockRead, past: int = 0, edited: tuple[str, ...] = ()) -> Rank:
    rank = Rank(*records, past=past, edited=edited)
    rank.at = (1, 0)
    return rank


def test_in_their_order_at_each_moment() -> None:
    rank = at_step(read(5.0), read(6.0), read(7.0, at=(1, 2)))
    assert [rank.read(), rank.read()] == [5.0, 6.0]
    rank.at = (1, 2)
    assert rank.read() == 7.0


def test_what_is_read_less_often_does_not_shift_later_moments() -> None:
    rank = at_step(read(5.0), read(6.0), read(7.0), read(8.0, at=(2, 0)))
    rank.read()
    rank.at = (2, 0)
    assert rank.read() == 8.0


def test_each_place_and_clock_has_its_own() -> None:
    rank = at_step(read(5.0), read(6.0, LOG), read(0.25, clock="perf_counter"))
    assert [rank.read(LOG), rank.read(clock=COUNTER), rank.read()] == [6.0, 0.25, 5.0]


def test_one_that_is_not_recorded_goes_on_from_the_last() -> None:
    rank = at_step(read(5.0))
    rank.read()
    assert 5.0 <= rank.read() < 60.0
    assert 5e9 <= rank.read(clock=WHOLE) < 60e9
    assert abs(rank.read(clock=COUNTER) - time.perf_counter()) < 60
    assert list(rank.clocks.not_recorded) == [
        "train.py:10 time.time", "train.py:10 time.time_ns", "train.py:10 time.perf_counter",
    ]  # fmt: skip


def test_a_timer_that_several_lines_call_is_told_apart_by_them() -> None:
    """A state snapshot is of the step's end, where the log has stopped its timer; the replay goes on at the step's."""
    of_log, of_step = site(10, "start", caller=95), site(10, "start", caller=70)
    rank = at_step(read(5.0, of_log), read(6.0, of_step))
    assert rank.read(of_step) == 6.0


def test_an_edited_function_takes_them_in_their_order() -> None:
    rank = at_step(read(5.0, site(10)), read(6.0, site(12)), edited=("/job/train.py",))
    assert [rank.read(site(line)) for line in (12, 14)] == [5.0, 6.0]


@pytest.mark.parametrize("past", [0, 1, 3])
def test_a_restored_rank_has_read_some_of_its_moment(past: int) -> None:
    reads = [read(value, number=number) for number, value in enumerate((5.0, 6.0, 7.0, 8.0))]
    rank = at_step(*reads, read(9.0, at=(2, 0)), past=past)
    assert [rank.read() for _ in range(4 - past)] == [5.0, 6.0, 7.0, 8.0][past:]
    rank.at = (2, 0)
    assert rank.read() == 9.0


def test_those_from_before_the_log_come_first() -> None:
    rank = Rank(early=[Read("time", STEP.function, STEP.place, value) for value in (1.0, 2.0)])
    assert rank.read() == 1.0
    rank.clocks.add([read(3.0, at=BEGIN, number=2)])
    assert [rank.read(), rank.read()] == [2.0, 3.0]


def test_what_was_before_a_snapshot_is_forgotten() -> None:
    rank = at_step(read(5.0), read(6.0, at=(2, 0)))
    rank.read()
    rank.clocks.forget()
    rank.clocks.add([read(7.0, at=(2, 0))])
    rank.at = (2, 0)
    assert rank.read() == 7.0


def test_what_the_debugger_computes_takes_none() -> None:
    rank = at_step(read(5.0))
    rank.clocks.is_quiet = lambda: True
    assert abs(rank.read() - time.time()) < 60
    rank.clocks.is_quiet = lambda: False
    assert rank.read() == 5.0


def test_other_threads_have_the_time_that_the_main_one_has() -> None:
    """One may wait until a time that the main thread has told it."""
    rank = at_step(read(5.0))
    rank.read()
    assert 5.0 <= rank.clocks.read_beside(CLOCK, LOG) < 60.0
    (told,) = rank.clocks.not_recorded
    assert told == "train.py:20 time.time in another thread"


class Waiting:
    """A rank that waits for something; `pass_s` lets time pass."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_s = 0.0
        monkeypatch.setattr(clocks, "monotonic_s", lambda: self.now_s)
        self.rank = at_step(read(5.0), read(9e9, clock="monotonic"))
        self.rank.read()
        self.rank.read(clock=UPTIME)

    def pass_s(self, seconds: float, pause_s: float) -> None:
        for _ in range(round(seconds / pause_s)):
            self.now_s += pause_s
            self.rank.read()


def test_who_waits_for_something_that_has_the_real_time_gets_it(monkeypatch: pytest.MonkeyPatch) -> None:
    waiting = Waiting(monkeypatch)
    waiting.pass_s(CATCHES_UP_S - 1, 0.5)
    assert waiting.rank.read() < 60
    waiting.pass_s(2, 0.5)
    assert abs(waiting.rank.read() - time.time()) < 60
    assert waiting.rank.read(clock=UPTIME) >= 9e9, "no clock goes back"


def test_who_stood_at_a_breakpoint_does_not_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    waiting = Waiting(monkeypatch)
    waiting.pass_s(3600 * CATCHES_UP_S / 2, 3600)
    assert waiting.rank.read() < 60


def test_a_restored_rank_goes_on_from_what_was_read_before() -> None:
    rank = at_step(read(4.0, at=(0, 7)), read(9e9, clock="monotonic"), past=1)
    assert 4.0 <= rank.read() < 60
    assert 9e9 <= rank.read(clock=UPTIME) < 9e9 + 60


def test_what_was_read_last_counts_whatever_its_unit() -> None:
    whole = read(200 * 10**9, clock="time_ns", number=1)
    rank = at_step(read(100.0), whole, read(300.0, number=2), past=3)
    assert 300.0 <= rank.read() < 360


def test_the_time_of_a_thread_is_no_other_threads() -> None:
    rank = at_step(read(9e9, clock="thread_time"), past=1)
    assert rank.read(clock=Clock("thread_time")) < 9e9
