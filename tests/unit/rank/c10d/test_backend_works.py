"""Works of a backend whose calls end where the program waits: what a poll asks, and when a dropped one is let go."""

from __future__ import annotations

import gc
import weakref
from types import SimpleNamespace
from typing import Any

import pytest

from prismdbg.model.ops import OPS
from prismdbg.rank.c10d import works
from prismdbg.rank.c10d.works import AnySourceWork, BackendWork, Completion, UnwaitedWorks, finished


class Inner:
    """As in torch 2.11, whose binding cannot give an exception to Python."""

    def __init__(self, *, is_broken: bool = False) -> None:
        self.is_broken = is_broken

    def is_completed(self) -> bool:
        if self.is_broken:
            raise RuntimeError("CUDA error: operation not permitted on an event last recorded in a capturing stream")
        return True

    def exception(self) -> None:
        raise TypeError("Unregistered type : std::__exception_ptr::exception_ptr")

    def wait(self, timeout: object) -> bool:
        return True

    def _source_rank(self) -> int:
        return 3


class Recorder:
    def __init__(self) -> None:
        self.complete_ids: list[int] = []

    def complete(self, call: Any, record_id: int, source: int, failure: object, at_ns: int | None) -> None:
        self.complete_ids.append(record_id)


def made(kind: type[BackendWork], inner: Inner, recorder: Any, record_id: int = 7, device: str = "cuda:0") -> Any:
    call: Any = SimpleNamespace(group=None, device=device, outputs=[])
    return kind(inner, Completion(recorder, call, record_id), call)


@pytest.fixture
def alive(monkeypatch: pytest.MonkeyPatch) -> UnwaitedWorks:
    """Works that this file makes count as those of torch's Python functions."""
    found = UnwaitedWorks()
    monkeypatch.setattr(works, "_alive", found)
    monkeypatch.setattr(works, "PYTHON_CALLERS", (__file__,))
    return found


def test_a_poll_asks_for_no_exception() -> None:
    recorder = Recorder()
    assert made(BackendWork, Inner(), recorder).is_completed() and recorder.complete_ids == [7]
    received = made(AnySourceWork, Inner(), recorder, 8, "cpu")
    assert received.wait() and received.is_completed() and received.is_completed()
    assert received._source_rank() == 3 and recorder.complete_ids == [7, 8]


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
    monkeypatch.setattr(works, "PYTHON_CALLERS", ("/torch/distributed/distributed_c10d.py",))
    recorder = Recorder()
    for _ in range(alive.MANY + 2):
        made(BackendWork, Inner(), recorder)
    assert recorder.complete_ids == []


def test_a_work_that_was_let_go_and_one_of_a_replay_have_a_future() -> None:
    released = made(BackendWork, Inner(), Recorder())
    assert released.release() and released.get_future().value() == released.result() == []
    spec = next(spec for spec in OPS.values() if spec.is_from_any)
    replayed: Any = works.dist.Work.unbox(finished(SimpleNamespace(spec=spec, outputs=["received"]), 2))  # type: ignore[arg-type]
    assert replayed.get_future().value() == replayed.result() == ["received"] and replayed._source_rank() == 2
