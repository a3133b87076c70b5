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
