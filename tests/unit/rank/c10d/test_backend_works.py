"""Works of a backend whose calls end where the program waits: what a poll asks, and when a dropped one is let go."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch._C._distributed_c10d import _create_work_from_future  # type: ignore[attr-defined]
from torch.distributed._functional_collectives import allow_inflight_collective_as_graph_input_ctx

from prismdbg.model.collective import Failure
from prismdbg.model.ops import OPS
from prismdbg.rank.c10d import backend_work, unwaited_works, works
from prismdbg.rank.c10d.backend_work import AnySourceWork, BackendWork
from prismdbg.rank.c10d.completion import Completion
from prismdbg.rank.c10d.unwaited_works import UnwaitedWorks
from prismdbg.rank.c10d.works import amend_wait, finished


class Inner:
    """As NCCL's in torch 2.11, whose binding cannot give an exception to Python. result: of `c10d::WorkResult`, None
    where the backend does not tell."""

    def __init__(
        self,
        *,
        is_broken: bool = False,
        result: int | None = 0,
        error: Exception | None = None,
        has_future: bool = True,
    ) -> None:
        self.is_broken = is_broken
        self._has_future = has_future
        self._result = result
        self._error = error

    def is_completed(self) -> bool:
        if self.is_broken:
            raise RuntimeError("CUDA error: operation not permitted on an event last recorded in a capturing stream")
        return True

    def exception(self) -> None:
        raise TypeError("Unregistered type : std::__exception_ptr::exception_ptr")

    def get_future_result(self) -> Any:
        if self._result is None:
            raise RuntimeError("Work::getFutureResult not implemented.")
        future: Any = torch.futures.Future()
        future.set_result(self._result)
        return future

    def block_current_stream(self) -> None: ...

    def synchronize(self) -> None: ...

    def get_future(self) -> Any:
        if not self._has_future:
            raise RuntimeError("Work::getFuture not implemented.")
        future: Any = torch.futures.Future()
        if self._error is None:
            future.set_result([])
        else:
            future.set_exception(self._error)
        return future

    def wait(self, timeout: object) -> bool:
        if self._error is not None:
            raise self._error
        return True

    def _source_rank(self) -> int:
        return 3


class Recorder:
    def __init__(self, *, rescues: bool = False) -> None:
        self.complete_ids: list[int] = []
        self.failures: list[Failure | None] = []
        self._rescues = rescues

    def complete(self, call: Any, record_id: int, source: int, failure: Failure | None, at_ns: int | None) -> None:
        self.complete_ids.append(record_id)
        self.failures.append(failure)

    def rescue(self, call: object, record_id: int) -> bool:
        return self._rescues


def made(
    kind: type[BackendWork],
    inner: Inner,
    recorder: Any,
    record_id: int = 7,
    device: str = "cuda:0",
    outputs: Sequence[torch.Tensor] = (),
) -> Any:
    call: Any = SimpleNamespace(group=None, device=device, outputs=list(outputs))
    return kind(inner, Completion(recorder, call, record_id), call)


@pytest.fixture
def alive(monkeypatch: pytest.MonkeyPatch) -> UnwaitedWorks:
    """Works that this file makes count as those of torch's Python functions."""
    found = UnwaitedWorks()
    monkeypatch.setattr(backend_work, "_alive", found)
    monkeypatch.setattr(unwaited_works, "PYTHON_CALLERS", (__file__,))
    return found


def test_a_poll_asks_for_no_exception() -> None:
    recorder = Recorder()
    assert made(BackendWork, Inner(), recorder).is_completed() and recorder.complete_ids == [7]
    received = made(AnySourceWork, Inner(), recorder, 8, "cpu")
    assert received.wait() and received.is_completed() and received.is_completed()
    assert received._source_rank() == 3 and recorder.complete_ids == [7, 8]


FAILED = RuntimeError("Connection closed by peer")
KNOWN_FAILED = pytest.param(2, id="the backend tells")
UNKNOWN = pytest.param(None, id="the backend does not tell")


@pytest.mark.parametrize("result", [KNOWN_FAILED, UNKNOWN])
def test_a_failure_is_recorded_after_a_poll(result: int | None) -> None:
    recorder = Recorder()
    work = made(BackendWork, Inner(result=result, error=FAILED), recorder)
    assert work.is_completed()
    with pytest.raises(RuntimeError, match="closed by peer"):
        work.wait()
    assert recorder.failures == [Failure("RuntimeError", str(FAILED), False)]


@pytest.mark.parametrize("result", [KNOWN_FAILED, UNKNOWN])
def test_a_restored_work_is_rescued_after_a_poll(result: int | None) -> None:
    recorder = Recorder(rescues=True)
    work = made(BackendWork, Inner(result=result, error=FAILED), recorder)
    assert work.is_completed() and work.wait() and work.is_completed()
    assert recorder.complete_ids == []


def test_a_work_of_which_it_is_not_known_whether_it_failed_ends_where_it_is_waited_for() -> None:
    recorder = Recorder()
    work = made(BackendWork, Inner(result=None), recorder)
    assert work.is_completed() and recorder.complete_ids == []
    assert work.wait() and recorder.failures == [None]


@pytest.mark.usefixtures("alive")
@pytest.mark.parametrize("is_polled", [False, True])
def test_a_dropped_work_that_failed_is_recorded_so(is_polled: bool) -> None:
    recorder = Recorder()
    work = made(BackendWork, Inner(result=None, error=FAILED), recorder, 0)
    assert not is_polled or work.is_completed()
    del work
    made(BackendWork, Inner(), recorder, 1)
    assert recorder.complete_ids == [0] and recorder.failures == [Failure("RuntimeError", str(FAILED), False)]


@pytest.mark.usefixtures("alive")
def test_a_dropped_work_failed_if_its_result_says_so() -> None:
    recorder = Recorder()
    made(BackendWork, Inner(result=2, has_future=False), recorder, 0)
    made(BackendWork, Inner(), recorder, 1)
    (failure,) = recorder.failures
    assert recorder.complete_ids == [0] and failure is not None and failure.type == "DistBackendError"


@pytest.mark.usefixtures("alive")
def test_what_the_program_holds_is_not_let_go() -> None:
    recorder = Recorder()
    held = made(BackendWork, Inner(), recorder, 0)
    for record_id in range(1, 10):
        made(BackendWork, Inner(), recorder, record_id)
    assert recorder.complete_ids == list(range(1, 9)), "all but what is held, and the last one"
    assert held.wait() and recorder.complete_ids[-1] == 0


@pytest.mark.usefixtures("alive")
def test_a_work_that_cannot_tell_whether_it_is_complete_ends_no_recording() -> None:
    recorder = Recorder()
    made(BackendWork, Inner(is_broken=True), recorder, 0)
    for record_id in range(1, 100):
        made(BackendWork, Inner(), recorder, record_id)
    assert recorder.complete_ids == list(range(1, 99))


def test_dropped_works_are_forgotten(alive: UnwaitedWorks) -> None:
    recorder = Recorder()
    first = weakref.ref(made(BackendWork, Inner(), recorder))
    for _ in range(alive.MANY + 2):
        made(BackendWork, Inner(), recorder)
    gc.collect()
    assert first() is None


def test_works_that_cpp_asked_for_wait_for_it(alive: UnwaitedWorks, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unwaited_works, "PYTHON_CALLERS", ("/torch/distributed/distributed_c10d.py",))
    recorder = Recorder()
    for _ in range(alive.MANY + 2):
        made(BackendWork, Inner(), recorder)
    assert recorder.complete_ids == []


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What stands for works in torch's own."""
    held = ["a work"]
    monkeypatch.setattr(unwaited_works, "_registry_size", lambda: len(held))
    return held


def test_works_in_the_registry_of_torch_wait_for_it(alive: UnwaitedWorks, registry: list[str]) -> None:
    recorder = Recorder()
    with allow_inflight_collective_as_graph_input_ctx():
        first = weakref.ref(made(BackendWork, Inner(), recorder))
        for _ in range(alive.MANY + 2):
            made(BackendWork, Inner(), recorder)
    polled = first()
    assert polled is not None and recorder.complete_ids == []
    assert polled.is_completed()
    del polled
    gc.collect()
    kept = first()
    assert kept is not None and kept.wait()
    del kept
    gc.collect()
    assert first() is not None
    registry.clear()
    made(BackendWork, Inner(), recorder)
    gc.collect()
    assert first() is None


@pytest.mark.usefixtures("alive", "registry")
def test_torch_still_waits_for_what_it_registered() -> None:
    """It takes out only works that were waited for."""
    with allow_inflight_collective_as_graph_input_ctx():
        work = made(BackendWork, Inner(), Recorder())
        seen = weakref.ref(work)
        work.get_future()
        del work
        gc.collect()
        kept = seen()
        assert kept is not None and kept.wait()
        del kept
    gc.collect()
    assert seen() is None


@pytest.mark.usefixtures("alive")
def test_a_work_of_two_tensors_may_be_waited_for_again(registry: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Where C++ has asked for it, by each of them."""
    monkeypatch.setattr(unwaited_works, "PYTHON_CALLERS", ("/torch/distributed/distributed_c10d.py",))
    work = made(BackendWork, Inner(), Recorder(), outputs=torch.zeros(2, 1).unbind())
    seen = weakref.ref(work)
    assert work.wait()
    del work
    gc.collect()
    assert seen() is not None
    registry.clear()
    made(BackendWork, Inner(), Recorder())
    gc.collect()
    assert seen() is None


@pytest.mark.usefixtures("alive", "registry")
@pytest.mark.parametrize("end", ["wait", "synchronize", "block_current_stream"])
def test_what_was_waited_for_leaves_the_registry(end: str) -> None:
    with allow_inflight_collective_as_graph_input_ctx():
        work = made(BackendWork, Inner(), Recorder())
        seen = weakref.ref(work)
        getattr(work, end)()
        del work
        gc.collect()
        assert seen() is None


def test_a_work_of_a_future_leaves_the_registry_when_it_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dist.Work, "wait", dist.Work.wait)
    left: list[Any] = []
    monkeypatch.setattr(works, "leave_registry", left.append)
    amend_wait()
    future: Any = torch.futures.Future()
    future.set_result([])
    work = _create_work_from_future(future)
    work.wait()
    assert left == [work]


def test_a_work_that_was_let_go_and_one_of_a_replay_have_a_future() -> None:
    released = made(BackendWork, Inner(), Recorder())
    assert released.release() and released.get_future().value() == released.result() == []
    spec = next(spec for spec in OPS.values() if spec.is_from_any)
    replayed: Any = torch.distributed.Work.unbox(finished(SimpleNamespace(spec=spec, outputs=["received"]), 2))  # type: ignore[arg-type]
    assert replayed.get_future().value() == replayed.result() == ["received"] and replayed._source_rank() == 2
