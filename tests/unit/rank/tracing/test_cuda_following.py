"""When memory of GPUs is followed and limited: as soon as CUDA is initialized, never before, and never in the way."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from prismdbg.rank.tracing import cuda


class Native:
    """An extension that was built with CUDA."""

    def __init__(self, *, is_armed: bool = True, refuses: str = "") -> None:
        self.followed = 0
        self._is_armed, self._refuses = is_armed, refuses

    def trace_stats(self) -> dict[str, bool]:
        return {"on": self._is_armed}

    def trace_follow_cuda(self) -> bool:
        if self._refuses:
            raise RuntimeError(self._refuses)
        self.followed += 1
        return True


@pytest.fixture(autouse=True)
def with_cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setattr(torch.cuda, "_queued_calls", [])


@pytest.fixture
def initialized(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)


@pytest.mark.usefixtures("initialized")
def test_an_initialized_cuda_is_followed_at_once() -> None:
    native = Native()
    cuda.follow(native)
    assert native.followed == 1 and cuda.untraced() == ""


def test_cuda_is_not_initialized_for_the_trace() -> None:
    native = Native()
    cuda.follow(native)
    assert native.followed == 0 and not torch.cuda.is_initialized()
    ((waiting, _),) = torch.cuda._queued_calls  # torch calls it when it initializes CUDA
    waiting()
    assert native.followed == 1


@pytest.mark.usefixtures("initialized")
def test_a_trace_that_has_ended_follows_nothing() -> None:
    native = Native(is_armed=False)
    cuda.follow(native)
    assert native.followed == 0


@pytest.mark.usefixtures("initialized")
def test_an_allocator_that_cannot_be_followed_is_said() -> None:
    cuda.follow(Native(refuses="cudaMallocAsync does not support it\nstack"))
    assert cuda.untraced() == "cudaMallocAsync does not support it"


def test_a_build_without_cuda_is_said() -> None:
    cuda.follow(SimpleNamespace())
    assert cuda.untraced().startswith("the native recorder was built without CUDA")


def test_a_torch_without_cuda_lacks_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.version, "cuda", None)
    cuda.follow(SimpleNamespace())
    assert cuda.untraced() == ""


@pytest.mark.usefixtures("initialized")
@pytest.mark.parametrize(("cap_bytes", "fraction"), [(1 << 30, 0.25), (1 << 40, 1.0), (0, 1.0)])
def test_a_cap_is_a_share_of_each_gpu(monkeypatch: pytest.MonkeyPatch, cap_bytes: int, fraction: float) -> None:
    limits: dict[int, float] = {}
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: SimpleNamespace(total_memory=4 << 30))
    monkeypatch.setattr(
        torch.cuda, "set_per_process_memory_fraction", lambda share, device: limits.update({device: share})
    )
    cuda.cap(cap_bytes)
    assert limits == {0: fraction, 1: fraction}


@pytest.mark.usefixtures("initialized")
def test_a_cap_that_fails_does_not_fail_the_program(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)  # of which this torch knows nothing
    cuda.cap(1 << 30)
    assert "--memory-cap does not hold on GPUs" in capsys.readouterr().err
