"""Transfers as waits on a device: the logic against a fake one, and what a device must do against the fake and, where
there is one, a GPU."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from fake_device import FakeDevice

from prismdbg.capsule.log.notes import DEVICE_WAITS
from prismdbg.errors import FacilityError, UsageError
from prismdbg.model.ops import OPS
from prismdbg.model.schedule import Lane, Row, RowKind, Schedule, digest
from prismdbg.rank.c10d.completion import Completion
from prismdbg.rank.c10d.watched_work import WatchedWork
from prismdbg.rank.emulation import cuda_device, device_calls, open_calls
from prismdbg.rank.emulation.clocks import WallClock
from prismdbg.rank.emulation.cuda_device import CudaDevice
from prismdbg.rank.emulation.device_waits import CHECKED_NS, ROUNDS, DeviceWaits, StreamWait, calibrated
from prismdbg.rank.emulation.open_calls import OpenCall, PacedClock
from prismdbg.rank.emulation.pace import Due, Issued, Pace

MS = 10**6


class Clock:
    def __init__(self) -> None:
        self.now_ns = 0

    def device(self) -> FakeDevice:
        return FakeDevice(lambda: self.now_ns, self.sleep)

    def sleep(self, length_ns: int) -> None:
        self.now_ns += length_ns


class FakeCuda:
    """A fake of what CudaDevice uses of torch.cuda, in virtual time: two cycles a nanosecond, 4 us for any kernel."""

    def __init__(self) -> None:
        self.clock, self.current, self.made = Clock(), "main", 0
        self.free_ns: dict[str, int] = {}

    def Stream(self, device: torch.device, priority: int = 0) -> Any:  # noqa: N802
        self.made += 1
        return self._named(f"stream {self.made}")

    def _named(self, name: str) -> Any:
        return SimpleNamespace(name=name, wait_event=lambda event: self._wait(name, event))

    def _wait(self, name: str, event: FakeEvent) -> None:
        self.free_ns[name] = max(self.at(name), event.at_ns)

    def at(self, name: str) -> int:
        return max(self.free_ns.get(name, 0), self.clock.now_ns)

    def Event(self, *, enable_timing: bool) -> Any:  # noqa: N802
        assert enable_timing
        return FakeEvent(self)

    def current_stream(self, device: torch.device) -> Any:
        return self._named(self.current)

    @contextmanager
    def stream(self, stream: Any) -> Iterator[None]:
        before, self.current = self.current, stream.name
        yield
        self.current = before

    def _sleep(self, cycles: int) -> None:
        self.free_ns[self.current] = self.at(self.current) + 4_000 + cycles // 2

    def synchronize(self) -> None:
        self.clock.now_ns = max(self.clock.now_ns, *self.free_ns.values())

    def is_current_stream_capturing(self) -> bool:
        return False


class FakeEvent:
    def __init__(self, cuda: FakeCuda) -> None:
        self.cuda, self.at_ns = cuda, -1

    def record(self, stream: Any) -> None:
        self.at_ns = self.cuda.at(stream.name)

    def query(self) -> bool:
        return self.cuda.clock.now_ns >= self.at_ns

    def synchronize(self) -> None:
        self.cuda.clock.now_ns = max(self.cuda.clock.now_ns, self.at_ns)

    def elapsed_time(self, later: FakeEvent) -> float:
        assert self.query() and later.query(), "CUDA refuses events that are not over"
        return (later.at_ns - self.at_ns) / 1e6


class Gpu(CudaDevice):
    def __init__(self) -> None:
        super().__init__("cuda:0")

    def compute(self, length_ns: int) -> None:
        cuda_device.torch.cuda._sleep(self._calibration.cycles(length_ns))

    def finish(self) -> None:
        cuda_device.torch.cuda.synchronize()


@pytest.fixture(params=["fake", "fake torch.cuda", "cuda"])
def device(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """What holds of the fakes is to hold of the hardware: to a tenth there, whose clocks change."""
    if request.param == "fake":
        yield Clock().device()
        return
    if request.param == "fake torch.cuda":
        cuda = FakeCuda()
        monkeypatch.setattr(cuda_device, "torch", SimpleNamespace(cuda=cuda, device=torch.device))
        monkeypatch.setattr(cuda_device, "time", SimpleNamespace(monotonic_ns=lambda: cuda.clock.now_ns))
        yield Gpu()
        return
    if not torch.cuda.is_available():
        pytest.skip(f"torch {torch.__version__} finds no GPU here")
    found = Gpu()
    yield found
    found.finish()


def about(length_ns: int) -> Any:
    return pytest.approx(length_ns, rel=0.1, abs=MS // 5)


class TestDevice:
    def test_a_wait_takes_its_length_and_begins_after_what_was_given_before(self, device: Any) -> None:
        before = device.mark()
        device.compute(20 * MS)
        begun, ended = device.queue("a", device.mark(), 10 * MS)
        assert not device.is_over(begun) and not device.is_over(ended), "nobody waited for it"
        device.finish()
        assert device.is_over(ended)
        assert device.at_ns(begun) - device.at_ns(before) == about(20 * MS)
        assert device.at_ns(ended) - device.at_ns(begun) == about(10 * MS)

    def test_waits_of_one_stream_follow_one_another_and_others_do_not(self, device: Any) -> None:
        after = device.mark()
        first, second, other = (device.queue(key, after, 10 * MS) for key in ("a", "a", "b"))
        device.finish()
        assert device.at_ns(second[1]) - device.at_ns(first[0]) == about(20 * MS)
        assert device.at_ns(other[1]) - device.at_ns(first[0]) == about(10 * MS)

    @pytest.mark.parametrize(("stands_first", "took_ms"), [(False, 20), (True, 30)])
    def test_a_program_computes_beside_it_until_its_stream_stands(
        self, device: Any, stands_first: bool, took_ms: int
    ) -> None:
        before = device.mark()
        _, ended = device.queue("a", before, 10 * MS)
        if stands_first:
            device.stand(ended)
        device.compute(20 * MS)
        device.stand(ended)
        after = device.mark()
        assert not device.is_over(after), "the host goes on"
        device.finish()
        assert device.at_ns(after) - device.at_ns(before) == about(took_ms * MS)

    def test_the_host_can_wait_too(self, device: Any) -> None:
        _, ended = device.queue("a", device.mark(), 5 * MS)
        device.block(ended)
        assert device.is_over(ended)

    def test_inside_a_stream_marks_are_its_own(self, device: Any) -> None:
        _, ended = device.queue("a", device.mark(), 5 * MS)
        with device.inside("a"):
            last = device.mark()
        device.finish()
        assert device.at_ns(last) >= device.at_ns(ended)

    def test_its_times_are_those_of_the_host(self, device: Any) -> None:
        if isinstance(device, FakeDevice):
            pytest.skip("the fake has a clock of its own")
        before_ns = cuda_device.time.monotonic_ns()
        mark = device.mark()
        device.finish()
        assert before_ns - MS <= device.at_ns(mark) <= cuda_device.time.monotonic_ns() + MS

    def test_how_far_its_calibration_was_off_is_known(self, device: Any) -> None:
        assert 0 <= device.residual < 0.1


def test_the_anchor_of_a_device_s_times_is_renewed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Events give 32-bit floats."""
    cuda = FakeCuda()
    monkeypatch.setattr(cuda_device, "torch", SimpleNamespace(cuda=cuda, device=torch.device))
    monkeypatch.setattr(cuda_device, "time", SimpleNamespace(monotonic_ns=lambda: cuda.clock.now_ns))
    device = Gpu()
    early = device.mark()
    cuda.clock.now_ns += 3600 * 1000 * MS
    late = device.mark()
    device.finish()
    assert late.anchor is not early.anchor
    assert device.at_ns(late) - device.at_ns(early) == 3600 * 1000 * MS


class TestCalibration:
    def test_a_device_as_it_should_be(self) -> None:
        found = calibrated(lambda cycles: 4_000 + cycles * 0.5, "cuda:0")
        assert (found.cycle_ns, found.overhead_ns, found.rounds) == (0.5, pytest.approx(4_000), 1)
        assert found.residual < 1e-6
        assert found.cycles(CHECKED_NS) == (CHECKED_NS - 4_000) * 2
        assert found.cycles(3_000) == 0, "an empty wait takes longer"

    def test_clocks_that_rise_are_measured_again(self) -> None:
        count = 0

        def measure(cycles: int) -> float:
            nonlocal count
            count += 1
            return cycles * (1.0 if count <= 12 else 0.5)  # half through the check of the first round

        found = calibrated(measure, "cuda:0")
        assert (found.cycle_ns, found.rounds) == (0.5, 2) and found.residual < 1e-6

    def test_rounds_are_bounded_and_the_best_is_taken(self) -> None:
        factors, count = [1.3, 1.2, 1.05, 1.4, 1.5], 0

        def measure(cycles: int) -> float:
            nonlocal count
            number, place = divmod(count, 15)
            count += 1
            return cycles * 0.5 * (factors[number] if place >= 10 else 1.0)

        found = calibrated(measure, "cuda:0")
        assert count == 15 * ROUNDS
        assert (found.rounds, found.residual) == (3, pytest.approx(0.05, abs=1e-4))

    def test_a_device_that_does_not_wait_is_refused(self) -> None:
        with pytest.raises(FacilityError, match="waits on cuda:0 cannot be calibrated"):
            calibrated(lambda _: 5_000.0, "cuda:0")


class TestDeviceWaits:
    def test_ends_are_told_when_they_are_over_and_all_in_the_end(self) -> None:
        clock, told, ends = Clock(), Notes(), []
        device = clock.device()
        waits = DeviceWaits(lambda _: device, lambda: False, told)
        for group in ("0", "1"):
            waits.begin("cuda:0", group, 10 * MS, lambda at_ns, group=group: ends.append((group, at_ns)))  # type: ignore[misc]
        waits.begin("cuda:0", "0", 5 * MS, lambda at_ns: ends.append(("0", at_ns)))
        waits.settle()
        assert ends == []
        clock.now_ns = 12 * MS
        waits.settle()
        assert ends == [("0", 10 * MS), ("1", 10 * MS)]
        assert list(waits._used["cuda:0"].open) == ["group 0"], "nothing is asked of a stream that has nothing to do"
        waits.drain()
        assert ends[2:] == [("0", 15 * MS)] and clock.now_ns == 15 * MS
        assert waits._used["cuda:0"].open == {}
        assert told.notes == [
            {"device": "cuda:0", "group": "0"},
            {"device": "cuda:0", "group": "1"},
            {"device": "cuda:0", "calls": 3, "asked_ns": 25 * MS, "took_ns": 25 * MS, "worst_ns": 0, "residual": 0.0},
        ]

    def test_sends_and_receives_wait_for_no_other_transfer(self) -> None:
        """A batch with one peer takes the longer of both, not the sum, as in the simulation."""
        clock = Clock()
        device = clock.device()
        waits = DeviceWaits(lambda _: device, lambda: False, Notes())

        def ends_ms(*, is_p2p: bool) -> list[int]:
            found = [waits.begin("cuda:0", "0", ms * MS, lambda _: None, is_p2p=is_p2p) for ms in (10, 20, 30)]
            return [each.ended_ns() // MS for each in found if each is not None]

        assert ends_ms(is_p2p=False) == [10, 30, 60]
        assert ends_ms(is_p2p=True) == [10, 20, 30]
        clock.now_ns = 20 * MS
        assert ends_ms(is_p2p=True) == [30, 40, 50]
        streams = {key for key in waits._used["cuda:0"].open if key.startswith("p2p")}
        assert len(streams) == 4, "those that are over are used again"

    def test_while_a_graph_is_made_nothing_waits_and_it_is_said_once(self) -> None:
        clock, told, captures = Clock(), Notes(), False
        device = clock.device()
        waits = DeviceWaits(lambda _: device, lambda: captures, told)
        ends: list[int] = []
        waits.begin("cuda:0", "0", MS, ends.append)
        captures = True
        clock.now_ns = 5 * MS
        assert waits.begin("cuda:0", "0", 10 * MS, ends.append) is None
        assert waits.begin("cuda:0", "0", 10 * MS, ends.append) is None
        waits.settle()
        assert ends == [], "the device must not be asked meanwhile"
        assert [note for note in told.notes if "text" in note] == [
            {"device": "cuda:0", "text": "collectives that a CUDA graph captures are not paced"}
        ]

    def test_a_device_is_opened_once_and_not_while_a_graph_is_made(self) -> None:
        clock, made, captures = Clock(), [], True

        def make(name: str) -> FakeDevice:
            assert not captures, "it calibrates"
            made.append(name)
            time.sleep(0.02)
            return clock.device()

        waits = DeviceWaits(make, lambda: captures, Notes())
        assert waits.begin("cuda:0", "0", MS, lambda _: None) is None and waits.prepare("cuda:0") == 0
        captures = False
        assert waits.prepare("cuda:0") >= 20 * MS and waits.prepare("cuda:0") == 0
        assert waits.begin("cuda:0", "0", MS, lambda _: None) is not None
        assert made == ["cuda:0"]


class Notes:
    def __init__(self) -> None:
        self.notes: list[dict[str, Any]] = []

    def __call__(self, kind: str, **data: Any) -> None:
        assert kind == DEVICE_WAITS
        self.notes.append(data)


class Written:
    """A completion."""

    def __init__(self) -> None:
        self.record_id, self.done_at = 7, [(-2, 0)]
        self.kept: list[bool] = []

    def done(self, source: int = -1, at_ns: int | None = None) -> None:
        assert at_ns is not None
        self.done_at.append((source, at_ns))

    def keep_values(self, are_wanted: bool) -> None:
        self.kept.append(are_wanted)


def paced_on(
    device: FakeDevice, monkeypatch: pytest.MonkeyPatch, is_capturing: Callable[[], bool] = lambda: False
) -> PacedClock:
    monkeypatch.setattr(open_calls, "runs_on_stream", lambda _: True)
    beat = PacedClock(None, WallClock(), lambda _: None)
    beat.devices = DeviceWaits(lambda _: device, is_capturing, Notes())
    return beat


def call_on(*, is_async: bool = True, is_p2p: bool = False, outputs: Sequence[Any] = ()) -> Any:
    return SimpleNamespace(
        is_async=is_async,
        spec=SimpleNamespace(is_p2p=is_p2p),
        device="cpu",
        group_name="0",
        root=-1,
        outputs=list(outputs),
    )


def due_of(length_ns: int, began_ns: int = 100, **more: int) -> Due:
    return Due(step=1, row=0, arrived_ns=began_ns, began_ns=began_ns, ends_ns=began_ns + length_ns, **more)


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[OpenCall, Written, Any]]:
    """A call of 10 ms on a fake device, whose values are wanted."""

    def make(*, is_async: bool = True, fill: Callable[[], None] | None = None) -> tuple[OpenCall, Written, Any]:
        clock = Clock()
        device = clock.device()
        beat = paced_on(device, monkeypatch)
        monkeypatch.setattr(beat, "now_ns", lambda: clock.now_ns)
        waited: list[tuple[int, int]] = []
        recorder = SimpleNamespace(
            waited=lambda record_id, began_ns: waited.append((record_id, began_ns)), wants_values=lambda _: True
        )
        found = OpenCall(recorder, beat, call_on(is_async=is_async), due_of(10 * MS, busy_ns=5), fill)  # type: ignore[arg-type]
        written = Written()
        found.opened(written, 3)  # type: ignore[arg-type]
        return found, written, SimpleNamespace(clock=clock, device=device, beat=beat, waited=waited)

    return make


class TestOpenCall:
    def test_the_stream_waits_and_the_host_does_not(self, opened: Callable[..., Any]) -> None:
        call, written, job = opened()
        job.device.compute(4 * MS)
        assert not call.is_there()
        call.wait()
        assert job.clock.now_ns == 0 and job.waited == [(7, 0)]
        job.device.compute(3 * MS)
        assert job.device.mark() == 13 * MS, "4 ms of the 10 beside it, then 3"
        assert written.done_at[1:] == [], "not known so far"
        job.clock.now_ns = 20 * MS
        assert call.is_there()
        job.beat.begin_step(2, None)
        assert written.done_at[1:] == [(3, 10 * MS)] and written.kept == [True]

    def test_each_stream_that_waits_stands(self, opened: Callable[..., Any]) -> None:
        call, _, job = opened()
        work = WatchedWork(call, [], devices=[torch.device("cuda:0")])
        for stream in ("main", "another"):
            with job.device.inside(stream):
                work.wait()
                assert job.device.mark() == 10 * MS
        assert job.waited == [(7, 0)]

    def test_a_future_is_complete_at_once_for_the_host_on_the_stream_of_the_call(
        self, opened: Callable[..., Any]
    ) -> None:
        call, _, job = opened()
        kept: list[int] = []
        call.promise(lambda: kept.append(job.device.mark()))
        assert kept == [10 * MS] and job.clock.now_ns == 0
        call.ends_backward()
        assert job.device.mark() == 10 * MS

    def test_what_is_filled_when_it_is_waited_for_is_told_then(self, opened: Callable[..., Any]) -> None:
        filled: list[int] = []
        call, written, job = opened(fill=lambda: filled.append(job.device.mark()))
        job.clock.now_ns = 20 * MS
        job.beat.begin_step(2, None)
        assert written.done_at[1:] == [] and written.kept == [], "the values are not there"
        call.wait()
        assert filled == [20 * MS] and written.kept == [True]
        assert written.done_at[1:] == [(3, 10 * MS)]

    def test_blocking_wait_holds_the_host(self, opened: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(open_calls, "is_blocking_wait", lambda: True)
        call, _, job = opened(is_async=False)
        call.wait()
        assert job.clock.now_ns == 10 * MS and job.waited == []

    @pytest.mark.parametrize("busy_ns", [0, 5])
    def test_a_call_that_a_graph_captures_holds_nobody(self, busy_ns: int, monkeypatch: pytest.MonkeyPatch) -> None:
        wall = WallClock()
        schedule = Schedule(rank=0, step=1, steps=(), iteration_ns=0, streams=(), channels=(), rows=())
        beat = PacedClock(Pace(schedule, wall.now_ns), wall, lambda _: None)
        monkeypatch.setattr(open_calls, "runs_on_stream", lambda _: True)
        beat.devices = DeviceWaits(lambda _: FakeDevice(), lambda: True, Notes())
        recorder = SimpleNamespace(waited=lambda *_: None, wants_values=lambda _: False)
        due = due_of(60_000 * MS, wall.now_ns(), busy_ns=busy_ns)
        call = OpenCall(recorder, beat, call_on(is_async=False), due, None)  # type: ignore[arg-type]
        done: list[int | None] = []
        completion = SimpleNamespace(record_id=7, done=lambda _, at_ns=None: done.append(at_ns))
        call.opened(completion, 3)  # type: ignore[arg-type]
        assert call.is_there() and done == [None], "now"
        waits = threading.Thread(target=call.wait, daemon=True)
        waits.start()
        waits.join(10)
        assert not waits.is_alive()

    def test_the_others_are_as_late_as_simulated_where_the_host_runs_ahead(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """All compute for 40 ms before it, in the simulation and on the device, to which the host gives it at once."""
        clock = Clock()
        device = clock.device()
        call_row = Row(
            kind=RowKind.COLLECTIVE, op="all_reduce", channel=0, size_bytes=8, blocking=True, others_ns=40 * MS,
            transfer_ns=10 * MS,
        )  # fmt: skip
        lane = Lane(name="dp", members=2, digest=digest((0, 1)))
        for late_ns in (0, 5 * MS):
            device.compute(40 * MS)
            begun_ns = device.mark()
            schedule = Schedule(
                rank=0, step=1, steps=(0,), iteration_ns=0, streams=(), channels=(lane,),
                rows=(
                    Row(kind=RowKind.COMPUTE, duration_ns=40 * MS),
                    replace(call_row, others_ns=40 * MS + late_ns, late_ns=late_ns),
                ),
                families=("all_reduce",),
            )  # fmt: skip
            pace = Pace(schedule, lambda: clock.now_ns)
            pace.begin_step(0)
            due = pace.issue(Issued(label="all_reduce", group="0", ranks=(0, 1), size_bytes=8))
            assert due is not None and due.ends_ns == clock.now_ns + 50 * MS + late_ns, "as the host would wait for it"
            beat = paced_on(device, monkeypatch)
            beat.pace = pace
            wait, _ = beat.on_device(call_on(), due, lambda _: None)
            assert wait is not None
            wait.stand()
            pace.begin_step(1)
            assert pace.drift_ppm == 10**6, "how fast the device computes does not show in the host's calls"
            assert device.mark() - begun_ns == late_ns + 10 * MS
            device.finish()

    @pytest.mark.parametrize(("is_p2p", "ends_ms"), [(True, [10, 10]), (False, [10, 20])])
    def test_a_send_and_a_receive_with_one_peer_run_at_once(
        self, is_p2p: bool, ends_ms: list[int], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        beat = paced_on(Clock().device(), monkeypatch)
        found = [beat.on_device(call_on(is_p2p=is_p2p), due_of(10 * MS), lambda _: None)[0] for _ in range(2)]
        assert [wait.ended_ns() // MS for wait in found if wait is not None] == ends_ms

    def test_opening_a_device_is_left_out_of_the_rank_s_time(self, monkeypatch: pytest.MonkeyPatch) -> None:
        schedule = Schedule(rank=0, step=1, steps=(), iteration_ns=0, streams=(), channels=(), rows=())
        wall = WallClock()
        beat = PacedClock(Pace(schedule, wall.now_ns), wall, lambda _: None)
        monkeypatch.setattr(open_calls, "runs_on_stream", lambda _: True)

        def make(_: str) -> FakeDevice:
            time.sleep(0.1)
            return FakeDevice()

        beat.devices = DeviceWaits(make, lambda: False, Notes())
        before_ns, real_ns = wall.now_ns(), time.monotonic_ns()
        beat.prepare(call_on())
        assert time.monotonic_ns() - real_ns >= 100 * MS
        assert wall.now_ns() - before_ns < 50 * MS

    def test_ends_are_on_the_rank_s_clock_at_that_time(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """It stood for another rank after the issue, and before the end."""
        beat, ends = paced_on(FakeDevice(), monkeypatch), []
        assert beat.wall is not None and beat.devices is not None
        wait, _ = beat.on_device(call_on(), due_of(40 * MS), ends.append)
        time.sleep(0.01)
        beat.wall.leave_out(10 * MS)
        beat.devices.drain()
        assert wait is not None and ends == [wait.ended_ns() - 10 * MS]

    @pytest.mark.parametrize("is_filled_late", [False, True])
    def test_another_thread_may_tell_the_end_while_values_are_kept(
        self, is_filled_late: bool, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        beat, done = paced_on(FakeDevice(), monkeypatch), []
        assert beat.devices is not None

        class Tensor:
            def detach(self) -> Tensor:
                return self

            def clone(self) -> str:
                time.sleep(0.05)
                return "copy"

        @contextmanager
        def told_first() -> Iterator[None]:
            """The end is known, and another thread tells it, just before the copy."""
            beat.devices.drain()  # type: ignore[union-attr]
            yield

        monkeypatch.setattr(open_calls, "unseen", told_first)
        recorder = SimpleNamespace(
            waited=lambda *_: None,
            wants_values=lambda _: True,
            complete=lambda call, *_: done.append(list(call.outputs)),
        )
        fill = (lambda: None) if is_filled_late else None
        call = call_on(outputs=[Tensor()])
        found = OpenCall(recorder, beat, call, due_of(1000), fill)  # type: ignore[arg-type]
        is_over = threading.Event()

        def settles() -> None:
            until = time.monotonic() + 30
            while not is_over.wait(0.001) and time.monotonic() < until:
                beat.devices.settle()  # type: ignore[union-attr]

        other = threading.Thread(target=settles)
        other.start()
        try:
            found.opened(Completion(recorder, call, 1), 3)  # type: ignore[arg-type]
            found.wait()
        finally:
            is_over.set()
            other.join(30)
        beat.devices.drain()
        assert done == [["copy"]]


def test_a_completion_that_is_told_while_its_values_are_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    copies = threading.Event()

    class Tensor:
        def detach(self) -> Tensor:
            return self

        def clone(self) -> str:
            copies.set()
            time.sleep(0.05)
            return "copy"

    told: list[Any] = []
    call = SimpleNamespace(outputs=[Tensor()])
    completion = Completion(SimpleNamespace(complete=lambda call, *_: told.append(call.outputs)), call, 1)  # type: ignore[arg-type]

    def tells() -> None:
        copies.wait(10)
        completion.done(3, 5)

    other = threading.Thread(target=tells)
    other.start()
    completion.keep_values(True)
    other.join(10)
    assert told == [["copy"]]


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({}, False),
        ({"TORCH_NCCL_BLOCKING_WAIT": "1"}, True),
        ({"TORCH_NCCL_BLOCKING_WAIT": "True"}, True),
        ({"NCCL_BLOCKING_WAIT": "Y"}, True),
        ({"TORCH_NCCL_BLOCKING_WAIT": "yes"}, True),
        ({"TORCH_NCCL_BLOCKING_WAIT": "F", "NCCL_BLOCKING_WAIT": "1"}, False),
        ({"TORCH_NCCL_BLOCKING_WAIT": "maybe"}, None),
        ({"TORCH_NCCL_BLOCKING_WAIT": ""}, None),
    ],
)
def test_blocking_wait_is_read_as_torch_reads_it(
    variables: dict[str, str], expected: bool | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("TORCH_NCCL_BLOCKING_WAIT", "NCCL_BLOCKING_WAIT"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    device_calls.is_blocking_wait.cache_clear()
    try:
        if expected is None:
            with pytest.raises(UsageError, match="which torch's NCCL backend refuses"):
                device_calls.is_blocking_wait()
        else:
            assert device_calls.is_blocking_wait() is expected
    finally:
        device_calls.is_blocking_wait.cache_clear()


@pytest.mark.parametrize(
    ("device", "op", "backend", "expected"),
    [
        ("cpu", "allreduce_", "cuda:nccl", False),
        ("cuda:0", "allreduce_", "cuda:nccl", True),
        ("cuda:0", "allreduce_", "cpu:gloo,cuda:nccl", True),
        ("cuda:0", "allreduce_", "cpu:gloo", True),
        ("cuda:0", "allreduce_", "cpu:gloo,cuda:gloo", False),
        ("cuda:0", "allreduce_", "", True),
        ("cuda:0", "barrier", "cuda:nccl", False),
    ],
)
def test_which_calls_run_on_a_stream(
    device: str, op: str, backend: str, expected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    group = object()
    monkeypatch.setattr(device_calls.c10d, "_world", SimpleNamespace(pg_backend_config={group: backend}))
    call: Any = SimpleNamespace(device=device, spec=OPS[op], group=group)
    assert device_calls.runs_on_stream(call) is expected


def test_a_wait_says_how_long_it_took() -> None:
    clock = Clock()
    device = clock.device()
    device.compute(3 * MS)
    wait = StreamWait(device, "a", 10 * MS)
    assert (wait.took_ns(), wait.ended_ns(), wait.is_over()) == (10 * MS, 13 * MS, False)
