"""Transfers as waits on a device: the logic against a fake one, and what a device must do against the fake and, where
there is one, a GPU."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from fake_device import FakeDevice

from prismdbg.capsule.log.notes import DEVICE_WAITS
from prismdbg.errors import FacilityError
from prismdbg.model.ops import OPS
from prismdbg.rank.c10d.watched_work import WatchedWork
from prismdbg.rank.emulation import cuda_device, device_calls, open_calls
from prismdbg.rank.emulation.clocks import WallClock
from prismdbg.rank.emulation.cuda_device import CudaDevice
from prismdbg.rank.emulation.device_waits import CHECKED_NS, ROUNDS, DeviceWaits, StreamWait, calibrated
from prismdbg.rank.emulation.open_calls import OpenCall, PacedClock
from prismdbg.rank.emulation.pace import Due

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
        waits = DeviceWaits(lambda _: device, told)
        for group in ("0", "1"):
            waits.begin("cuda:0", group, "", 10 * MS, lambda at_ns, group=group: ends.append((group, at_ns)))  # type: ignore[misc]
        waits.begin("cuda:0", "0", "", 5 * MS, lambda at_ns: ends.append(("0", at_ns)))
        waits.settle()
        assert ends == []
        clock.now_ns = 12 * MS
        waits.settle()
        assert ends == [("0", 10 * MS), ("1", 10 * MS)]
        waits.drain()
        assert ends[2:] == [("0", 15 * MS)] and clock.now_ns == 15 * MS
        assert told.notes == [
            {"device": "cuda:0", "group": "0"},
            {"device": "cuda:0", "group": "1"},
            {"device": "cuda:0", "calls": 3, "asked_ns": 25 * MS, "took_ns": 25 * MS, "worst_ns": 0, "residual": 0.0},
        ]

    def test_pairs_of_a_group_have_streams_of_their_own(self) -> None:
        clock = Clock()
        device = clock.device()
        waits = DeviceWaits(lambda _: device, Notes())
        found = [waits.begin("cuda:0", "0", pair, 10 * MS, lambda _: None) for pair in ("1", "2", "1")]
        assert [each.ended_ns() // MS for each in found if each] == [10, 10, 20]

    def test_while_a_graph_is_made_nothing_waits_and_it_is_said_once(self) -> None:
        clock, told = Clock(), Notes()
        device = clock.device()
        waits = DeviceWaits(lambda _: device, told)
        ends: list[int] = []
        waits.begin("cuda:0", "0", "", MS, ends.append)
        device.captures = True
        clock.now_ns = 5 * MS
        assert waits.begin("cuda:0", "0", "", 10 * MS, ends.append) is None
        assert waits.begin("cuda:0", "0", "", 10 * MS, ends.append) is None
        waits.settle()
        assert ends == [], "the device must not be asked meanwhile"
        assert [note for note in told.notes if "text" in note] == [
            {"device": "cuda:0", "text": "collectives that a CUDA graph captures are not paced"}
        ]


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


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[OpenCall, Written, Any]]:
    """A call of 10 ms on a fake device, whose values are wanted."""

    def make(*, is_async: bool = True, fill: Callable[[], None] | None = None) -> tuple[OpenCall, Written, Any]:
        monkeypatch.setattr(open_calls, "runs_on_stream", lambda _: True)
        clock = Clock()
        device = clock.device()
        beat = PacedClock(None, WallClock(), lambda _: None)
        monkeypatch.setattr(beat, "now_ns", lambda: clock.now_ns)
        beat.devices = DeviceWaits(lambda _: device, Notes())
        waited: list[tuple[int, int]] = []
        recorder = SimpleNamespace(
            waited=lambda record_id, began_ns: waited.append((record_id, began_ns)), wants_values=lambda _: True
        )
        call = SimpleNamespace(
            is_async=is_async, spec=SimpleNamespace(is_p2p=False), device="cpu", group_name="0", root=-1
        )
        due = Due(step=1, row=0, arrived_ns=100, began_ns=100, ends_ns=100 + 10 * MS, free_ns=100, busy_ns=5)
        found, written = OpenCall(recorder, beat, call, due, fill), Written()  # type: ignore[arg-type]
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
        monkeypatch.setattr(open_calls, "BLOCKING_WAIT", True)
        call, _, job = opened(is_async=False)
        call.wait()
        assert job.clock.now_ns == 10 * MS and job.waited == []


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
