"""Ranks of one class compute equally long: what differed was the machine, which ran them one after the other."""

from __future__ import annotations

from test_typical_iteration import computed, iteration

from prismdbg.simulate.graph.entries import Entries
from prismdbg.simulate.graph.entry_writer import EntryWriter
from prismdbg.simulate.graph.folding import fold
from prismdbg.simulate.graph.mesh import Mesh
from prismdbg.simulate.graph.pooling import MOST_TOLD, Spread, doubts, memory_doubts, pooled
from prismdbg.simulate.quantities import MILLION

MS = 1_000_000


def waiting(*computed_ns: int) -> Entries:
    """As `iteration`, with a wait that it issues asynchronously between."""
    writer = EntryWriter()
    for taken_ns in computed_ns:
        call = writer.collective("all_reduce", "tp", 64)
        writer.compute(taken_ns)
        writer.wait(call)
    return writer.done()


def test_noise_of_the_machine_makes_no_slow_ranks() -> None:
    taken_ms = (36.7, 125.7, 94.5, 32.0)
    by_rank = {rank: iteration(int(each * MS), MS).entries for rank, each in enumerate(taken_ms)}
    found, (spread,) = pooled(by_rank)
    assert {rank: computed(entries) for rank, entries in found.items()} == {rank: [65_600_000, MS] for rank in range(4)}
    assert set(fold(Mesh.parse("tp=4"), found).compute_ppm_at.tolist()) == {MILLION}
    assert spread.doubt() == (
        "the computing time of the class of rank 0: its 4 ranks took 33.0 to 126.7 ms; their median, "
        "66.6 ms, is used for all"
    )


def test_the_median_is_that_of_the_whole_not_the_sum_of_its_parts_medians() -> None:
    """Each rank was disturbed once, elsewhere."""
    found, (spread,) = pooled({0: iteration(90, 10, 10).entries, 1: iteration(10, 90, 10).entries,
                               2: iteration(10, 10, 100).entries})  # fmt: skip
    assert (spread.least_ns, spread.pooled_ns, spread.most_ns) == (110, 110, 120)
    assert [sum(computed(entries)) for entries in found.values()] == [110, 110, 110]


def test_ranks_that_issue_something_else_are_another_class() -> None:
    found, spreads = pooled({0: iteration(10).entries, 1: iteration(90, op="barrier").entries})
    assert {rank: computed(entries) for rank, entries in found.items()} == {0: [10], 1: [90]}
    assert not spreads


def test_where_they_do_not_go_entry_by_entry_each_keeps_its_proportions() -> None:
    writer = EntryWriter()
    writer.compute(10)
    writer.compute(30)  # another operator was seen
    writer.collective("all_reduce", "tp", 64)
    found, _ = pooled({0: iteration(80).entries, 1: writer.done()})
    assert {rank: computed(entries) for rank, entries in found.items()} == {0: [60], 1: [15, 45]}


def test_a_small_spread_is_not_said() -> None:
    assert pooled({0: waiting(1000, 500), 1: waiting(1010, 500)})[1] == []


def holding(*peaks_bytes: int) -> Entries:
    writer = EntryWriter()
    for size_bytes in peaks_bytes:
        writer.memory(size_bytes, "block")
        writer.memory(-size_bytes, "block")
    writer.collective("all_reduce", "tp", 64)
    return writer.done()


def test_ranks_of_one_class_that_need_different_memory_are_named() -> None:
    by_rank = {0: holding(5, 1_000_000), 1: holding(1_200_000), 2: holding(), 3: holding(1_100_000, 7)}
    assert memory_doubts(by_rank) == (
        "the memory of the class of rank 0: the peaks of 3 of its ranks are 1.0 to 1.2 MB; that of rank 0, 1.0 MB, "
        "is used for all",
    )
    other = iteration(10, op="barrier").entries
    assert memory_doubts({0: holding(1000), 1: holding(1001), 2: holding(), 3: other}) == (), "as good as equal"


def test_of_many_classes_the_widest_are_told_one_by_one() -> None:
    spreads = [
        Spread(ranks=(rank, rank + 1), least_ns=100, most_ns=100 + 10 * share, pooled_ns=100)
        for rank, share in ((0, 3), (2, 9), (4, 1), (6, 8), (8, 7))
    ]
    *told, rest = doubts(spreads)
    assert [text.split(":")[0][-6:] for text in told] == ["rank 2", "rank 6", "rank 8"] and len(told) == MOST_TOLD
    assert rest == "the computing time of 2 more classes: ranks of one class differ by up to 30%"
    assert doubts(spreads[:2]) == (spreads[0].doubt(), spreads[1].doubt())
