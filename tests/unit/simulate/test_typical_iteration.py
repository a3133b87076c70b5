"""The median of several iterations."""

from __future__ import annotations

from prismdbg.simulate.graph.entries import PROVENANCES, Entries, Kind, Provenance
from prismdbg.simulate.graph.entry_writer import EntryWriter
from prismdbg.simulate.graph.typical_iteration import Iteration, typical_iteration


def iteration(*computed_ns: int, op: str = "all_reduce", displaced: float = 0.0) -> Iteration:
    writer = EntryWriter()
    for taken_ns in computed_ns:
        writer.compute(taken_ns, provenance=Provenance.REAL)
        writer.collective(op, "tp", 64)
    return Iteration(entries=writer.done(), displaced=displaced)


def computed(entries: Entries) -> list[int]:
    return [int(taken) for taken in entries.duration_ns[entries.kind == Kind.COMPUTE]]


def provenances(entries: Entries) -> set[Provenance]:
    return {PROVENANCES[number] for number in entries.provenance[entries.kind == Kind.COMPUTE]}


def test_each_computation_takes_its_median_and_nothing_else_changes() -> None:
    last = iteration(10, 90)
    found = typical_iteration([iteration(70, 20), iteration(12, 22), last])

    assert computed(found) == [12, 22]
    others = found.kind != Kind.COMPUTE
    assert (found.duration_ns[others] == last.entries.duration_ns[others]).all()
    assert provenances(found) == {Provenance.REAL}


def test_an_iteration_that_went_otherwise_does_not_count() -> None:
    assert computed(
        typical_iteration([iteration(1000, 1000, op="barrier"), iteration(1, 1, 1), iteration(10, 90)])
    ) == [10, 90]


def test_one_iteration_is_itself() -> None:
    last = iteration(5)
    assert typical_iteration([last]) is last.entries


def test_where_the_machine_was_busy_the_other_iterations_decide() -> None:
    found = typical_iteration([iteration(10, 90), iteration(12, 92), iteration(70, 700, displaced=0.5)])
    assert computed(found) == [11, 91]


def test_where_it_always_was_busy_times_are_cut_by_that_and_count_as_modelled() -> None:
    found = typical_iteration([iteration(40, 80, displaced=0.75), iteration(20, 40, displaced=0.5)])
    assert computed(found) == [10, 20]
    assert provenances(found) == {Provenance.MODELLED}


def test_an_iteration_of_another_kind_does_not_decide_where_the_others_were_busy() -> None:
    """As a first iteration that broadcasts: the graph of the last one would have its calls."""
    first, last = iteration(5, 6, op="broadcast"), iteration(20, 40, displaced=0.5)
    found = typical_iteration([first, iteration(40, 80, displaced=0.75), last])
    assert [found.texts[number] for number in found.op[found.communicates]] == ["all_reduce", "all_reduce"]
    assert computed(found) == [10, 20]
