"""What a recorded rank reads from clocks becomes records of its log."""

from __future__ import annotations

import pytest

from prismdbg.capsule.log.clock_reads import BEGIN, CLOCKS, MOST_EARLY, At, ClockRead, Read, are_reads
from prismdbg.rank.program import clocks
from prismdbg.rank.program.clocks import Clock, Site
from prismdbg.rank.recording.inputs.clock_reads import (
    ALL_AT_ONCE,
    AT_ONCE,
    MOST_EARLY_ASKED,
    MOST_EARLY_OF_A_PLACE,
    PER_S,
    ClockReads,
)

CLOCK = Clock("time")


def site(line: int) -> Site:
    return Site((("train.py", "step", line), ("train.py", "<module>", 90)))


class Rank:
    """Records what it reads; `now_s` is the time by which it counts."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_s, self.at, self.written = 1000.0, BEGIN, list[ClockRead]()
        monkeypatch.setattr(clocks, "monotonic_s", lambda: self.now_s)
        self.reads = ClockReads()

    def begin(self) -> list[Read]:
        self.reads.moment = self.moment
        return self.reads.begin(lambda body: self.written.append(ClockRead.from_bytes(body)))

    def moment(self) -> At:
        return self.at

    def read(self, line: int = 3) -> float:
        return float(self.reads.read(CLOCK, site(line)))


@pytest.fixture
def rank(monkeypatch: pytest.MonkeyPatch) -> Rank:
    return Rank(monkeypatch)


@pytest.mark.parametrize("name", CLOCKS)
def test_a_record_says_what_was_read(name: str) -> None:
    value = 1 << 60 if name.endswith("_ns") else 0.1
    read = ClockRead((7, 3), 2, Read(name, 2**32 - 1, 5, value))
    assert ClockRead.from_bytes(read.to_bytes() + bytes(8)) == read


def test_a_record_of_no_clock_is_refused() -> None:
    damaged = bytearray(ClockRead((7, 3), 2, Read("time", 1, 5, 0.5)).to_bytes())
    damaged[12] = len(CLOCKS)
    with pytest.raises(ValueError, match="no clock"):
        ClockRead.from_bytes(bytes(damaged))


@pytest.mark.parametrize(
    "read",
    [
        ("time", 1, 2, 3), ("time_ns", 1, 2, 3.0), ("time", 1, 2, float("nan")), ("sundial", 1, 2, 3.0),
        ("time", -1, 2, 3.0), ("time", 1, 2**32, 3.0), ("time", 1, 2), ("time", 1, 2, True), 4, ([], 1, 2, 3.0),
    ],
)  # fmt: skip
def test_what_is_no_read_is_refused(read: object) -> None:
    assert are_reads([("time", 1, 2, 3.0), ["time_ns", 1, 2, 3]]) == ""
    assert are_reads([read])


def test_what_was_read_before_the_log_is_returned(rank: Rank) -> None:
    value = rank.read()
    assert rank.begin() == [Read("time", site(3).function, site(3).place, value)]
    assert rank.written == []


def test_only_so_many_are_kept_before_the_log(rank: Rank) -> None:
    clocks.observe(rank.reads)
    for line in range(MOST_EARLY + 10):
        rank.read(line)
    assert clocks._observer is None, "a process that is no rank is left alone"
    assert len(rank.begin()) == MOST_EARLY
    rank.read(MOST_EARLY + 20)
    assert rank.written == [], "a replay may have passed it"
    rank.at = (0, 1)
    rank.read(3)
    assert [each.at for each in rank.written] == [(0, 1)]


def test_who_never_has_a_log_is_left_alone(rank: Rank) -> None:
    clocks.observe(rank.reads)
    for _ in range(MOST_EARLY_ASKED + 2):
        rank.read()
    assert clocks._observer is None


def test_a_place_that_reads_often_before_the_log_is_left_out_and_no_other_is(rank: Rank) -> None:
    for _ in range(MOST_EARLY):
        rank.read(3)
    value = rank.read(4)
    assert [read.value for read in rank.begin()][MOST_EARLY_OF_A_PLACE:] == [value]
    rank.read(3)
    assert rank.written == [], "a replay is past the last one that is recorded"


def test_a_read_is_written_at_once(rank: Rank) -> None:
    """Whatever ends the process next, and whoever copies the log."""
    rank.begin()
    for line in (1, 2, 3):
        value = rank.read(line)
        assert (rank.written[-1].number, rank.written[-1].read.value) == (line - 1, value)


def test_reads_of_another_moment_are_counted_anew(rank: Rank) -> None:
    rank.begin()
    rank.read()
    rank.read()
    rank.at = (4, 2)
    rank.read()
    assert [(each.at, each.number) for each in rank.written] == [(BEGIN, 0), (BEGIN, 1), ((4, 2), 0)]
    assert (rank.reads.at, rank.reads.count) == ((4, 2), 1)


def test_a_place_that_reads_too_often_is_left_out_and_no_other_is(rank: Rank) -> None:
    rank.begin()
    for _ in range(int(AT_ONCE) + 50):
        rank.read(3)
    rank.read(4)
    assert [each.number for each in rank.written] == [*range(int(AT_ONCE)), AT_ONCE + 50]
    rank.now_s += 1
    rank.read(3)  # a replay is past the last one that is recorded
    assert rank.written[-1].number == AT_ONCE + 50
    rank.at = (4, 2)
    for _ in range(int(AT_ONCE)):
        rank.read(3)
    assert sum(each.at == (4, 2) for each in rank.written) == PER_S


def test_many_places_together_are_bounded(rank: Rank) -> None:
    rank.begin()
    for line in range(int(ALL_AT_ONCE) + 100):
        rank.read(line)
    assert len(rank.written) == ALL_AT_ONCE


def test_what_the_debugger_computes_reads_for_nobody(rank: Rank) -> None:
    rank.begin()
    rank.reads.is_quiet = lambda: True
    assert rank.read() > 0
    assert rank.written == [] and rank.reads.count == 0
