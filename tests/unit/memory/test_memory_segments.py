"""What a device's allocator has of it, from records of any order and size: exact, and in bounded time."""

import time
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from traces import TraceBuilder

from prismdbg.capsule.limits import MAX_DEVICES
from prismdbg.errors import CapsuleError
from prismdbg.memory.segments import reserved_ranges
from prismdbg.memory.trace import open_trace

RECORDS = st.lists(st.tuples(st.booleans(), st.integers(1, 40), st.integers(0, 12)), max_size=40)


@given(RECORDS)
def test_it_is_what_a_page_at_a_time_would_give(
    tmp_path_factory: pytest.TempPathFactory, records: list[tuple[bool, int, int]]
) -> None:
    trace = TraceBuilder(tmp_path_factory.mktemp("trace"))
    held: set[int] = set()
    for is_got, address, size in records:
        (trace.reserve if is_got else trace.release)(address, size, device=1)
        pages = range(address, address + size)
        held = held.union(pages) if is_got else held.difference(pages)
    trace.allocate(1, device=1)
    ranges = reserved_ranges(open_trace(trace.write()))
    assert ranges == sorted(ranges) and all(start < end for start, end in ranges)
    assert all(a[1] <= b[0] for a, b in pairwise(ranges))
    assert {page for start, end in ranges for page in range(start, end)} == held


def test_many_take_no_longer_than_they_are_many(tmp_path: Path) -> None:
    trace = TraceBuilder(tmp_path)
    for number in range(20_000):
        trace.reserve(number * 16, 8, device=1)
    trace.allocate(1, device=1)
    read = open_trace(trace.write())
    began = time.process_time()
    assert len(reserved_ranges(read)) == 20_000
    assert time.process_time() - began < 5, "20,000 pieces: each looked at all the others, that took a minute"


@pytest.mark.parametrize("device", [MAX_DEVICES + 1, (1 << 16) - 1])
def test_a_device_that_no_process_can_have_is_damage(tmp_path: Path, device: int) -> None:
    trace = TraceBuilder(tmp_path)
    trace.allocate(1, device=device)
    with pytest.raises(CapsuleError, match="torch numbers at most"):
        open_trace(trace.write())
