"""Times of one telling of an iteration, parts of another."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from prismdbg.simulate.graph.entries import Entries, Kind
from prismdbg.simulate.graph.entry_writer import EntryWriter
from prismdbg.simulate.graph.sharing import shared_out


def iteration(*stretches: list[int]) -> Entries:
    """Computations between collectives, the second of which is waited for after its next stretch."""
    writer = EntryWriter()
    under_way = -1
    for number, stretch in enumerate(stretches):
        for taken_ns in stretch:
            writer.memory(4)
            writer.compute(taken_ns, f"op {taken_ns}")
        if under_way >= 0:
            writer.wait(under_way)
        if number < len(stretches) - 1:
            entry = writer.collective("all_reduce", "dp", 8, blocking=number != 1)
            under_way = entry if number == 1 else -1
    return writer.done()


def computed(entries: Entries) -> list[int]:
    return entries.duration_ns[entries.kind == Kind.COMPUTE].tolist()


def test_proportions_stay_and_sums_are_the_others() -> None:
    shared = shared_out(iteration([100], [40], [9]), iteration([10, 30], [5, 5, 10], [3]))
    assert computed(shared) == [25, 75, 10, 10, 20, 9]
    assert shared.texts[shared.label[1]] == "op 10" and shared.peak_bytes() == 24


def test_what_calls_otherwise_is_left_as_it_is() -> None:
    parts = iteration([10, 30], [5])
    assert shared_out(iteration([1], [2], [3]), parts) is parts


@given(st.lists(st.tuples(st.integers(1, 10**10), st.lists(st.integers(1, 10**9), min_size=1)), min_size=1, max_size=5))
def test_sums_are_kept_to_the_nanosecond(stretches: list[tuple[int, list[int]]]) -> None:
    times, parts = iteration(*([total] for total, _ in stretches)), iteration(*(own for _, own in stretches))
    shared = computed(shared_out(times, parts))
    assert min(shared) >= 0
    ends = np.cumsum([len(own) for _, own in stretches])
    assert [sum(part) for part in np.split(np.array(shared), ends[:-1])] == [total for total, _ in stretches]
