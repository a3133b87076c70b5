"""The median of several iterations."""

from __future__ import annotations

from prismdbg.predict.entries import Entries, Kind
from prismdbg.predict.entry_writer import EntryWriter
from prismdbg.predict.usual import usual


def iteration(*computed_ns: int, op: str = "all_reduce") -> Entries:
    writer = EntryWriter()
    for taken_ns in computed_ns:
        writer.compute(taken_ns)
        writer.collective(op, "tp", 64)
    return writer.done()


def computed(entries: Entries) -> list[int]:
    return [int(taken) for taken in entries.duration_ns[entries.kind == Kind.COMPUTE]]


def test_each_computation_takes_its_median_and_nothing_else_changes() -> None:
    last = iteration(10, 90)
    found = usual([iteration(70, 20), iteration(12, 22), last])

    assert computed(found) == [12, 22]
    others = found.kind != Kind.COMPUTE
    assert (found.duration_ns[others] == last.duration_ns[others]).all()


def test_an_iteration_that_went_otherwise_does_not_count() -> None:
    assert computed(usual([iteration(1000, 1000, op="barrier"), iteration(1, 1, 1), iteration(10, 90)])) == [10, 90]


def test_one_iteration_is_itself() -> None:
    last = iteration(5)
    assert usual([last]) is last
