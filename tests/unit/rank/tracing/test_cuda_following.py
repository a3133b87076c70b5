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


class Gpus:
    """Two of 4 GiB; as torch does, a limit is set on the device that is then the current one."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.current, self.limits = 0, dict[int, float]()
        monkeypatch.setattr(cuda, "_is_limited", False)
        monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
        monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: SimpleNamespace(total_memory=4 << 30))
        monkeypatch.setattr(torch.cuda, "current_device", lambda: self.current)
        monkeypatch.setattr(torch.cuda, "set_device", lambda device: setattr(self, "current", device))
        monkeypatch.setattr(torch.cuda, "set_per_process_memory_fraction", self._limit)

    def _limit(self, share: float, device: int) -> None:
        self.current = device
        self.limits[device] = share


@pytest.mark.usefixtures("initialized")
@pytest.mark.parametrize(("local_rank", "device"), [("1", 1), ("3", 1), ("0", 0), ("", 0)])
def test_a_cap_is_a_share_of_the_ranks_gpu(monkeypatch: pytest.MonkeyPatch, local_rank: str, device: int) -> None:
    monkeypatch.setenv("LOCAL_RANK", local_rank)
    gpus = Gpus(monkeypatch)
    cuda.cap(1 << 30)
    assert gpus.limits == {device: 0.25} and gpus.current == 0
    cuda.cap(1 << 40)
    assert gpus.limits == {device: 1.0}


@pytest.mark.usefixtures("initialized")
def test_the_programs_own_limit_stays_where_there_was_no_cap(monkeypatch: pytest.MonkeyPatch) -> None:
    gpus = Gpus(monkeypatch)
    cuda.cap(0)
    assert gpus.limits == {}
    cuda.cap(1 << 30)
    cuda.cap(0)
    assert gpus.limits == {0: 1.0}


@pytest.mark.usefixtures("initialized")
def test_a_cap_that_fails_does_not_fail_the_program(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)  # of which this torch knows nothing
    cuda.cap(1 << 30)
    assert "--memory-cap does not hold on GPUs" in capsys.readouterr().err
