"""What a shape takes at constant efficiency: its parts are found again, and add up."""

from __future__ import annotations

import numpy as np
import pytest

from prismdbg.predict.fit.added import Added
from prismdbg.predict.operators.work import Work, matmul, memory_bound


def products(*sides: float) -> Work:
    m, n, k = (axis.ravel() for axis in np.meshgrid(sides, sides, sides))
    return matmul("mm", m=m, n=n, k=k)


def test_arithmetic_bytes_and_the_call_are_found_again() -> None:
    work = products(256.0, 1024.0, 4096.0)
    found = Added.of(work, 1e-5 * work.flops + 1e-3 * work.moved_bytes + 4_000)
    assert (found.flop_ns, found.byte_ns, found.call_ns) == pytest.approx((1e-5, 1e-3, 4_000), rel=1e-6)
    larger = products(16384.0)
    assert found.time_ns(larger) == pytest.approx(1e-5 * larger.flops + 1e-3 * larger.moved_bytes + 4_000)


def test_what_only_moves_bytes_has_no_arithmetic() -> None:
    items = np.array([1e4, 1e5, 1e6, 1e7])
    work = memory_bound("add", {"items": items}, items=items, ways=3)
    found = Added.of(work, 2e-3 * work.moved_bytes)
    assert found.flop_ns == 0 and found.byte_ns == pytest.approx(2e-3)
    assert found.call_ns == pytest.approx(0, abs=1)


def test_no_part_is_negative() -> None:
    """The longer a shape, the less it takes: nothing that adds up does so."""
    items = np.array([1e4, 1e5, 1e6])
    found = Added.of(memory_bound("add", {"items": items}, items=items, ways=3), np.array([3e4, 2e4, 1e4]))
    assert min(found.flop_ns, found.byte_ns, found.call_ns) >= 0 < found.call_ns
