"""A rank that computes as slowly as on a processor that others share."""

from __future__ import annotations

import threading
import time
import tracemalloc

import pytest

from prismdbg.rank.emulation import clocks
from prismdbg.rank.emulation.clocks import SharedProcessor, WallClock

COMPUTED_NS = 5_000_000


class ToldClock(WallClock):
    """Notes how long it was to sleep, and does not."""

    def __init__(self) -> None:
        super().__init__()
        self.slept_ns: list[int] = []

    def sleep_until(self, when_ns: int) -> None:
        self.slept_ns.append(when_ns - self.now_ns())


class TestWhatItShowedThen:
    def test_what_it_left_out_is_kept_only_for_who_asks(self) -> None:
        clock = WallClock()
        tracemalloc.start()
        before = tracemalloc.get_traced_memory()[0]
        for _ in range(10_000):
            clock.leave_out(1)
        taken = tracemalloc.get_traced_memory()[0] - before
        tracemalloc.stop()
        assert taken < 10_000

    def test_from_when_it_is_kept(self, monkeypatch: pytest.MonkeyPatch) -> None:
        now = [1000]
        monkeypatch.setattr(clocks.time, "monotonic_ns", lambda: now[0])
        clock = WallClock()
        clock.leave_out(100)
        clock.keep_past()
        assert clock.at_ns(990) == 890, "a device's clock may be a little behind"
        now[0] = 1500
        clock.leave_out(200)
        clock.keep_past()
        assert [clock.at_ns(at) for at in (1200, 1300, 1400, 1500, 1600)] == [1100, 1200, 1200, 1200, 1300]
        assert clock.now_ns() == clock.at_ns(1500)


def compute() -> None:
    ends_ns = time.thread_time_ns() + COMPUTED_NS
    while time.thread_time_ns() < ends_ns:
        pass


@pytest.mark.parametrize(("slower_ppm", "least_ns"), [(3_000_000, 2 * COMPUTED_NS), (1_500_000, COMPUTED_NS // 2)])
def test_it_waits_for_what_it_computed_again(slower_ppm: int, least_ns: int) -> None:
    clock = ToldClock()
    processor = SharedProcessor(clock, slower_ppm)
    processor.go_on()
    compute()
    processor.catch_up()
    (slept_ns,) = clock.slept_ns
    assert 0.95 * least_ns < slept_ns < 2 * least_ns + COMPUTED_NS


def test_what_was_caught_up_with_does_not_count_again() -> None:
    clock = ToldClock()
    processor = SharedProcessor(clock, 3_000_000)
    processor.go_on()
    compute()
    processor.catch_up()
    processor.catch_up()
    assert clock.slept_ns[1] < COMPUTED_NS


def test_a_thread_is_charged_only_for_its_own() -> None:
    clock = ToldClock()
    processor = SharedProcessor(clock, 3_000_000)
    processor.go_on()
    other = threading.Thread(target=lambda: (compute(), processor.catch_up()))
    other.start()
    other.join()
    assert clock.slept_ns == [], "nobody said when the other one began to compute"
    processor.catch_up()
    assert clock.slept_ns[0] < COMPUTED_NS


def test_where_nothing_is_shared_it_never_waits() -> None:
    clock = ToldClock()
    processor = SharedProcessor(clock, 1_000_000)
    processor.go_on()
    compute()
    processor.catch_up()
    assert clock.slept_ns == []
