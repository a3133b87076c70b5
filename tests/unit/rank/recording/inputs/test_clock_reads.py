"""What a recorded rank reads from clocks becomes records of its log."""

from __future__ import annotations

from typing import Any

import pytest

from prismdbg.capsule.log.clock_reads import BEGIN, MOST_EARLY, At, ClockReads, Read
from prismdbg.rank.program import clocks
from prismdbg.rank.program.clocks import Clock, Site
from prismdbg.rank.recording.inputs import clock_reads
from prismdbg.rank.recording.inputs.clock_reads import MOST_AT_ONCE, READS_PER_S
from prismdbg.rank.recording.inputs.clock_reads import ClockReads as Reads

CLOCK = Clock("time")
SITE = Site("train.py", "step", 3)


class Rank:
    """Records what it reads; `now_s` is the time by which records are written."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_s, self.at, self.written = 1000.0, BEGIN, list[ClockReads]()
        monkeypatch.setattr(clocks, "monotonic_s", lambda: self.now_s)
        self.reads = Reads()

    def begin(self) -> list[Read]:
        self.reads.moment = self.moment
        return self.reads.begin(lambda body: self.written.append(ClockReads.from_bytes(body)))

    def moment(self) -> At:
        return self.at

    def read(self, line: int = 3, **_: Any) -> float:
        return float(self.reads.read(CLOCK, SITE._replace(line=line)))


@pytest.fixture
def rank(monkeypatch: pytest.MonkeyPatch) -> Rank:
    return Rank(monkeypatch)


def test_what_was_read_before_the_log_is_returned(rank: Rank) -> None:
    value = rank.read()
    assert rank.begin() == [Read("time", SITE.number, 3, value)]
    assert rank.written == []


def test_only_so_many_are_kept_before_the_log(rank: Rank) -> None:
    for _ in range(MOST_EARLY + 10):
        rank.read()
    assert len(rank.begin()) == MOST_EARLY


def test_a_read_is_written_at_once_and_soon_ones_together(rank: Rank) -> None:
    rank.begin()
    values = [rank.read(line) for line in (1, 2, 3)]
    assert [[read.value for read in each.reads] for each in rank.written] == [values[:1]]
    rank.now_s += 1
    values.append(rank.read())
    assert [[read.value for read in each.reads] for each in rank.written] == [values[:1], values[1:]]
    assert [each.number for each in rank.written] == [0, 1]


def test_reads_of_another_moment_are_counted_anew(rank: Rank) -> None:
    rank.begin()
    rank.read()
    rank.read()
    rank.at = (4, 2)
    rank.read()
    rank.reads.flush()
    assert [(each.at, each.number, len(each.reads)) for each in rank.written] == [
        (BEGIN, 0, 1),
        (BEGIN, 1, 1),
        ((4, 2), 0, 1),
    ]
    assert (rank.reads.at, rank.reads.count) == ((4, 2), 1)


def test_what_is_read_too_often_is_left_out_and_said_once(rank: Rank) -> None:
    rank.begin()
    for _ in range(int(MOST_AT_ONCE) + 50):
        rank.read()
    assert sum(len(each.reads) for each in rank.written) == MOST_AT_ONCE
    assert [each.number for each in rank.written if not each.reads] == [MOST_AT_ONCE]
    rank.now_s += 1
    for _ in range(2 * int(READS_PER_S)):
        rank.read()
    rank.reads.flush()
    assert sum(len(each.reads) for each in rank.written) == MOST_AT_ONCE + READS_PER_S
    assert rank.written[-1].number > MOST_AT_ONCE + 50 - 1
    assert sum(not each.reads for each in rank.written) == 1


def test_what_the_debugger_computes_reads_for_nobody(rank: Rank) -> None:
    rank.begin()
    rank.reads.is_quiet = lambda: True
    assert rank.read() > 0
    assert rank.written == [] and rank.reads.count == 0


def test_nothing_is_written_before_there_is_a_log(rank: Rank) -> None:
    rank.read()
    rank.reads.flush()
    assert rank.written == []
    assert clock_reads.READS is not rank.reads
