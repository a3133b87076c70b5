"""What recording takes is left out of a paced rank's clock, and who waits for a transfer is woken once, at its end."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from prismdbg.capsule.log.format import StepSource
from prismdbg.model.schedule import Lane, Row, RowKind, Schedule, digest
from prismdbg.rank.c10d.watched_work import WatchedWork
from prismdbg.rank.emulation import backend_load
from prismdbg.rank.emulation.clocks import WallClock
from prismdbg.rank.emulation.open_calls import OpenCall, PacedClock
from prismdbg.rank.emulation.pace import Due, Issued, Pace

MS = 10**6
LONG_S = 0.05
CALL = Issued(label="all_reduce", group="0", ranks=(0, 1), size_bytes=8)


def schedule_of(*rows: Row, steps: tuple[int, ...] = tuple(range(1, 30))) -> Schedule:
    lane = Lane(name="dp", members=2, digest=digest((0, 1)))
    return Schedule(rank=0, step=1, steps=steps, iteration_ns=0, streams=(), channels=(lane,), rows=rows)


def clock_of(*, leaves_out: bool = True) -> PacedClock:
    wall = WallClock()
    return PacedClock(Pace(schedule_of(), wall.now_ns), wall, lambda _: None, leaves_out=leaves_out)


class Completion:
    record_id = 7

    def __init__(self) -> None:
        self.done_at: list[int | None] = []

    def done(self, source: int, at_ns: int | None = None) -> None:
        self.done_at.append(at_ns)


def opened(
    beat: PacedClock, due: Due | None, *, is_async: bool = True, waited: Callable[..., None] = lambda *_: None
) -> tuple[OpenCall, Completion]:
    recorder: Any = SimpleNamespace(waited=waited, wants_values=lambda _: False)
    call: Any = SimpleNamespace(is_async=is_async, spec=SimpleNamespace(is_p2p=False), device="cpu", group_name="0")
    found, completion = OpenCall(recorder, beat, call, due, None, arrived_ns=beat.now_ns()), Completion()
    found.opened(completion, 3)  # type: ignore[arg-type]
    return found, completion


def due_in(beat: PacedClock, length_ns: int, busy_ns: int = 0) -> Due:
    now_ns = beat.now_ns()
    return Due(step=1, row=0, arrived_ns=now_ns, began_ns=now_ns, ends_ns=now_ns + length_ns, busy_ns=busy_ns)


class TestLeftOut:
    def test_what_a_call_that_holds_nobody_takes(self) -> None:
        beat = clock_of()
        came_ns = beat.now_ns()
        time.sleep(LONG_S)
        beat.computes(came_ns, came_ns)
        assert beat.now_ns() - came_ns < LONG_S * 1e9 / 2

    def test_what_comes_after_the_end_of_one_that_holds_its_issuer(self) -> None:
        beat = clock_of()
        came_ns = beat.now_ns()
        time.sleep(LONG_S)
        beat.computes(came_ns, came_ns + 10 * MS)
        assert 10 * MS <= beat.now_ns() - came_ns < LONG_S * 1e9 / 2

    def test_nothing_where_it_has_not_come_to_its_end(self) -> None:
        beat = clock_of()
        came_ns = beat.now_ns()
        beat.computes(came_ns, came_ns + 1000 * MS)
        assert beat.now_ns() >= came_ns

    def test_not_where_ranks_run_at_once(self) -> None:
        beat = clock_of(leaves_out=False)
        came_ns = beat.now_ns()
        time.sleep(LONG_S)
        beat.computes(came_ns, came_ns)
        assert beat.now_ns() - came_ns >= LONG_S * 1e9

    @pytest.mark.parametrize("busy_ns", [0, MS // 10])
    def test_what_a_wait_takes_to_be_recorded(self, busy_ns: int) -> None:
        beat = clock_of()
        due = due_in(beat, 5 * MS, busy_ns)
        call, _ = opened(beat, due, waited=lambda *_: time.sleep(LONG_S))
        call.wait()
        assert beat.now_ns() - due.ends_ns < LONG_S * 1e9 / 2

    def test_an_answer_without_a_pace_is_there_at_once(self) -> None:
        wall = WallClock()
        beat = PacedClock(None, wall, lambda _: None, leaves_out=True)
        call, completion = opened(beat, None, is_async=False)
        assert completion.done_at == [call.issuer_goes_on_ns()]


class TestWokenOnce:
    @pytest.fixture
    def late(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """The carrier's thread is woken late, as on a busy machine."""
        sleep_until = backend_load.Carrier._sleep_until

        def oversleep(carrier: backend_load.Carrier, when_ns: int) -> None:
            is_end = when_ns - carrier._clock.now_ns() > 2 * MS
            sleep_until(carrier, when_ns)
            if is_end:
                time.sleep(10 * LONG_S)

        monkeypatch.setattr(backend_load.Carrier, "_sleep_until", oversleep)

    @pytest.mark.usefixtures("late")
    def test_who_waits_goes_on_at_the_end_though_the_carrier_sleeps(self) -> None:
        beat = clock_of()
        due = due_in(beat, 20 * MS, busy_ns=MS // 10)
        call, completion = opened(beat, due)
        began = time.monotonic()
        call.wait()
        assert time.monotonic() - began < 5 * LONG_S
        assert completion.done_at == [due.ends_ns]
        assert call.is_there()

    @pytest.mark.usefixtures("late")
    def test_so_does_the_reducer_s_future(self) -> None:
        beat = clock_of()
        call, _ = opened(beat, due_in(beat, 20 * MS, busy_ns=MS // 10))
        kept: list[int] = []
        call.promise(lambda: kept.append(threading.get_ident()))
        call.ends_backward()
        assert kept == [threading.get_ident()]
        time.sleep(12 * LONG_S)
        assert len(kept) == 1, "the carrier does not keep it again"

    def test_and_the_future_of_a_transfer_that_takes_no_processor(self, monkeypatch: pytest.MonkeyPatch) -> None:
        beat = clock_of()
        asked: list[int] = []
        assert beat.timer is not None
        monkeypatch.setattr(beat.timer, "at", lambda when_ns, _: asked.append(when_ns))
        due = due_in(beat, 5 * MS)
        call, _ = opened(beat, due)
        kept: list[int] = []
        call.promise(lambda: kept.append(1))
        assert asked == [due.ends_ns] and not kept
        call.ends_backward()
        assert kept == [1]

    def test_a_transfer_whose_work_takes_longer_ends_later(self) -> None:
        beat = clock_of()
        due = due_in(beat, MS, busy_ns=30 * MS)
        call, completion = opened(beat, due)
        call.wait()
        (done_ns,) = completion.done_at
        assert done_ns is not None and done_ns >= due.arrived_ns + 30 * MS


class SteppedClock(WallClock):
    """Goes on only when it is told to, or slept by."""

    def __init__(self) -> None:
        super().__init__()
        self.at = 10**9

    def now_ns(self) -> int:
        return self.at

    def sleep_until(self, when_ns: int) -> None:
        self.at = max(self.at, when_ns)


class TestWaitsThatNobodySees:
    """Each step computes 100 ms, as scheduled, then calls. All peers do the same. A transfer takes 2 ms."""

    ROWS = (
        Row(kind=RowKind.COMPUTE, duration_ns=100 * MS),
        Row(kind=RowKind.COLLECTIVE, op="all_reduce", channel=0, size_bytes=8, others_ns=100 * MS,
            others_gain_ns=100 * MS, transfer_ns=2 * MS),
    )  # fmt: skip

    @pytest.fixture
    def clock(self, monkeypatch: pytest.MonkeyPatch) -> PacedClock:
        wall = SteppedClock()
        pace = Pace(schedule_of(*self.ROWS, steps=tuple(range(1, 400))), wall.now_ns)
        beat = PacedClock(pace, wall, lambda _: None)
        monkeypatch.setattr(beat.timer, "at", lambda *_: None)
        return beat

    def steps(self, beat: PacedClock, waits: Callable[[OpenCall, Due], None]) -> set[int]:
        """How long each of 300 takes, in milliseconds."""
        assert beat.pace is not None and isinstance(beat.wall, SteppedClock)
        taken = set()
        for step in range(1, 301):
            beat.begin_step(step, StepSource.OPTIMIZER)
            began_ns = beat.wall.at
            beat.wall.at += 100 * MS
            due = beat.issue(CALL)
            assert due is not None
            waits(opened(beat, due)[0], due)
            taken.add((beat.wall.at - began_ns) // MS)
        assert beat.pace.drift_ppm == 10**6
        return taken

    def test_a_wait_is_seen(self, clock: PacedClock) -> None:
        assert self.steps(clock, lambda call, _: call.wait()) == {102}

    def test_a_program_that_asks_whether_it_is_complete(self, clock: PacedClock) -> None:
        wall = clock.wall
        assert isinstance(wall, SteppedClock)

        def ask(call: OpenCall, _: Due) -> None:
            work = WatchedWork(call, [])
            while not work.is_completed():
                wall.at += MS
            work.let_go()

        assert self.steps(clock, ask) == {102}

    def test_a_program_that_waits_for_the_future(self, clock: PacedClock) -> None:
        """As DDP does for what a communication hook returns."""
        wall = clock.wall
        assert isinstance(wall, SteppedClock)

        def waits(call: OpenCall, due: Due) -> None:
            future = WatchedWork(call, []).get_future()
            wall.sleep_until(due.ends_ns)
            call._is_over()  # by the timer
            future.wait()

        assert self.steps(clock, waits) == {102}

    @pytest.mark.parametrize("is_seen", [True, False])
    def test_of_futures_only_the_reducer_s_own_are_seen(self, is_seen: bool, clock: PacedClock) -> None:
        assert clock.pace is not None and isinstance(clock.wall, SteppedClock)
        for step in range(1, 10):
            clock.begin_step(step, StepSource.OPTIMIZER)
            clock.wall.at += 120 * MS
            due = clock.issue(CALL)
            assert due is not None
            call, _ = opened(clock, due)
            call.promise(lambda: None, is_seen=is_seen)
            call.ends_backward()
        assert clock.pace.drift_ppm == (1_200_000 if is_seen else 10**6)

    def test_a_call_that_is_there_already_makes_nobody_wait(self, clock: PacedClock) -> None:
        assert clock.pace is not None and isinstance(clock.wall, SteppedClock)
        for step in range(1, 6):
            clock.begin_step(step, StepSource.OPTIMIZER)
            clock.wall.at += 100 * MS
            due = clock.issue(CALL)
            assert due is not None
            call, _ = opened(clock, due)
            clock.wall.at = due.ends_ns
            assert call.is_there()
            call.promise(lambda: None)
        assert clock.pace.drift_ppm == 1_020_000


class TestDrift:
    """A step computes 100 in the schedule, and the others come at 100; all of that is computation."""

    ROWS = (
        Row(kind=RowKind.COMPUTE, duration_ns=100),
        Row(kind=RowKind.COLLECTIVE, blocking=True, op="all_reduce", channel=0, size_bytes=8, others_ns=100,
            others_gain_ns=100, transfer_ns=30),
    )  # fmt: skip

    def begun_at(self, computed: list[int], *rows: Row) -> list[int]:
        """Of each step's transfer, after the step's begin, where the rank computes so long before it."""
        now = [5000]
        pace = Pace(schedule_of(*(rows or self.ROWS)), lambda: now[0])
        found = []
        for step, taken in enumerate(computed, 1):
            pace.begin_step(step)
            began = now[0]
            now[0] += taken
            due = pace.issue(CALL)
            assert due is not None
            now[0] = due.ends_ns
            pace.stood(due.ends_ns - due.arrived_ns)
            found.append(due.began_ns - began)
        return found

    def test_peers_come_later_where_the_machine_has_become_slower(self) -> None:
        assert self.begun_at([120, 120, 120, 120, 10]) == [120] * 5

    def test_and_earlier_where_it_has_become_faster(self) -> None:
        assert self.begun_at([80] * 5) == [100] * 4 + [80]

    def test_one_step_that_takes_longer_is_not_the_machine(self) -> None:
        assert self.begun_at([100, 100, 100, 190, 10])[-1] == 100

    def test_three_steps_tell_nothing_of_the_machine(self) -> None:
        assert self.begun_at([120, 120, 120, 10])[-1] == 100

    def test_what_the_peers_do_not_compute_does_not_move(self) -> None:
        half = (
            self.ROWS[0],
            Row(**{n: getattr(self.ROWS[1], n) for n in self.ROWS[1].__slots__} | {"others_gain_ns": 50}),
        )
        assert self.begun_at([120, 120, 120, 120, 10], *half)[-1] == 110

    def test_what_a_rank_stands_in_its_calls_is_no_computation(self) -> None:
        wall = WallClock()
        row = Row(kind=RowKind.COLLECTIVE, op="all_reduce", channel=0, size_bytes=8, transfer_ns=60 * MS)
        pace = Pace(schedule_of(Row(kind=RowKind.COMPUTE, duration_ns=20 * MS), row), wall.now_ns)
        beat = PacedClock(pace, wall, lambda _: None, leaves_out=True)
        for step in range(1, 5):
            beat.begin_step(step, StepSource.OPTIMIZER)
            time.sleep(0.02)
            due = beat.issue(CALL)
            call, _ = opened(beat, due, is_async=False)
            call.wait()
        beat.begin_step(5, StepSource.OPTIMIZER)
        assert 0.9e6 < pace.drift_ppm < 1.8e6, "2 and more, if it had computed all the time"

    def test_it_is_bounded(self) -> None:
        assert self.begun_at([900] * 4 + [10])[-1] == 200

    def test_where_several_threads_issue_nothing_is_known(self) -> None:
        other = Row(kind=RowKind.COLLECTIVE, issuer=2, op="all_reduce", channel=0, size_bytes=8)
        pace = Pace(schedule_of(*self.ROWS, other), lambda: 0)
        pace._ratios.append(1.5)
        assert pace.drift_ppm == 10**6
