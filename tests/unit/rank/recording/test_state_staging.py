"""Memory into which tensors are copied: on which device it is, and which copies are waited for."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from prismdbg.capsule import safetensors
from prismdbg.rank.recording import state_snapshots, state_staging
from prismdbg.rank.recording.state_staging import Staging


def test_the_program_s_default_device_changes_nothing(tmp_path: Path) -> None:
    with torch.device("meta"):
        staging = Staging()
        assert staging._data.device.type == "cpu"
        staging.copy({"weight": torch.ones(3, device="cpu")})
        staging.write(tmp_path / "file")
        assert state_snapshots.copy_s_per_byte() > 0
    parts, begin = safetensors.read_header(tmp_path / "file")
    assert (tmp_path / "file").read_bytes()[begin:] == bytes(torch.ones(3).view(torch.uint8).tolist())
    assert list(parts) == ["weight"]


class Stream:
    def __init__(self, device: int, waited: list[int]) -> None:
        self.device, self.waited = device, waited

    def record_event(self) -> Any:
        return SimpleNamespace(synchronize=lambda: self.waited.append(self.device))


class OnGpu:
    """A tensor on a device that is not there."""

    def __init__(self, device: int) -> None:
        self.device = torch.device("cuda", device)
        self.value = torch.ones(2)
        self.dtype, self.shape = self.value.dtype, self.value.shape


def test_copies_from_every_gpu_are_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[int] = []
    current: Any = lambda device=None: Stream(0 if device is None else device.index, waited)  # noqa: E731
    monkeypatch.setattr(state_staging.torch.cuda, "current_stream", current)
    staging = Staging()
    monkeypatch.setattr(staging, "_make_room", lambda size_bytes, _: None)
    staging._data = torch.zeros(64, dtype=torch.uint8)
    copy = torch.Tensor.copy_
    monkeypatch.setattr(torch.Tensor, "copy_", lambda place, source, **_: copy(place, source.value))
    staging.copy({"a": OnGpu(1), "b": OnGpu(0), "c": OnGpu(1), "d": OnGpu(2)})  # type: ignore[dict-item]
    staging.write(tmp_path / "file")
    assert sorted(waited) == [0, 1, 2]


class Cudart:
    """What of CUDA's runtime pins memory: which of it is pinned, and all that was asked."""

    def __init__(self) -> None:
        self.pinned: dict[int, int] = {}
        self.asked: list[tuple[str, int]] = []

    def cudaHostRegister(self, place: int, size_bytes: int, flags: int) -> int:  # noqa: N802
        self.pinned[place] = size_bytes
        self.asked.append(("pin", size_bytes))
        return 0

    def cudaHostUnregister(self, place: int) -> int:  # noqa: N802
        self.asked.append(("unpin", self.pinned.pop(place)))
        return 0


def test_memory_for_gpus_is_pinned_as_large_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch's own pinned memory is as large as the next power of two, and is never given back."""
    cudart = Cudart()
    monkeypatch.setattr(torch.cuda, "cudart", lambda: cudart)
    monkeypatch.setattr(torch.cuda, "check_error", lambda code: None)
    monkeypatch.setattr(torch, "empty", lambda *_, **__: pytest.fail("torch allocates it"))
    staging = Staging()
    for pages, is_pinned in [(9, True), (8, True), (10, True), (1, False), (2, True), (1, False)]:
        size_bytes = pages * state_staging.PAGE - 1
        staging._make_room(size_bytes, is_pinned)
        assert staging._data.numel() >= size_bytes
        assert list(cudart.pinned) == ([staging._data.data_ptr()] if is_pinned else [])
    sizes = [("pin", 9), ("unpin", 9), ("pin", 10), ("unpin", 10), ("pin", 2), ("unpin", 2)]
    assert [(what, size // state_staging.PAGE) for what, size in cudart.asked] == sizes, "the old memory goes first"


def test_pinned_memory_is_not_in_a_forked_process_and_is_again_when_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    """A write after a fork may move a page of the program's; memory that malloc uses again must be in children."""
    monkeypatch.setattr(torch.cuda, "cudart", Cudart)
    monkeypatch.setattr(torch.cuda, "check_error", lambda code: None)
    asked: list[int] = []
    madvise = state_staging._libc.madvise
    monkeypatch.setattr(
        state_staging._libc, "madvise", lambda *how: asked.append(how[2]) or asked.append(madvise(*how))
    )
    staging = Staging()
    staging._make_room(100, True)
    monkeypatch.setattr(Cudart, "cudaHostUnregister", lambda *_: 0)
    staging._make_room(100, False)
    assert asked == [10, 0, 11, 0], "the kernel refused"
