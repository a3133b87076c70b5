"""What the starter asks NVIDIA's driver for a rank: in a process and a view of its own, or not at all."""

from __future__ import annotations

import os
import sys
import time
from types import SimpleNamespace
from typing import Any

import pytest
from starter_parts import starter_parts

from prismdbg.checkpoint import gpu_facts

PID = 7
VIEW = 42


@pytest.fixture
def gpu_state() -> Any:
    starter_parts()
    return sys.modules["gpu_state"]


@pytest.fixture
def asked(gpu_state: Any, monkeypatch: pytest.MonkeyPatch) -> list[int | None]:
    """The views of the processes that ask; their answers are those of a driver that agrees."""
    views: list[int | None] = []
    monkeypatch.setattr(gpu_state, "DEVICES", "/dev/null")  # and "ctl" behind it, below
    monkeypatch.setattr(gpu_state, "Path", lambda name: SimpleNamespace(exists=lambda: name == "/dev/nullctl"))
    monkeypatch.setattr(gpu_state, "Driver", lambda: object())
    monkeypatch.setattr(gpu_state, "kept_view", lambda: VIEW)
    monkeypatch.setattr(gpu_state, "has_loaded", lambda pid: True)
    monkeypatch.setattr(gpu_state, "has_gpu_open", lambda pid: pid == PID)
    monkeypatch.setattr(gpu_state, "in_child", lambda action, bound_s, view=None: views.append(view))
    return views


def test_each_use_is_in_the_view_that_was_kept(gpu_state: Any, asked: list[int | None]) -> None:
    gpus = gpu_state.Gpus(has_devices=True)
    assert gpus.suspend([PID, 8], 30.0) == [PID]
    gpus.resume([PID], 30.0)
    gpus.resume([], 30.0)
    assert asked == [VIEW, VIEW]


def test_a_move_is_not_waited_for_as_long_as_an_image_is_written(
    gpu_state: Any, asked: list[int | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A driver that hangs is noticed however much memory the rank has."""
    bounds: list[float] = []
    monkeypatch.setattr(gpu_state, "in_child", lambda action, bound_s, view=None: bounds.append(bound_s))
    gpus = gpu_state.Gpus(has_devices=True)
    gpus.suspend([PID], 2000.0)
    gpus.resume([PID], 2000.0)
    gpus.resume([PID], 30.0)
    assert bounds == [125.0, 120.0, 30.0]


def test_without_that_view_there_is_no_driver(
    gpu_state: Any, asked: list[int | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused() -> int:
        raise gpu_state.PlaceError("cannot copy the mount namespace")

    monkeypatch.setattr(gpu_state, "kept_view", refused)
    gpus = gpu_state.Gpus(has_devices=True)
    for use in (gpus.suspend, gpus.resume):
        with pytest.raises(gpu_state.GpuError, match="cannot copy the mount namespace"):
            use([PID], 30.0)
    assert asked == []


def test_a_container_has_none(gpu_state: Any, asked: list[int | None]) -> None:
    with pytest.raises(gpu_state.GpuError, match="the replay has no GPU"):
        gpu_state.Gpus(has_devices=False).resume([PID], 30.0)
    assert asked == []


def test_a_rank_whose_state_cannot_be_given_back_is_not_restored(
    monkeypatch: pytest.MonkeyPatch, gpu_state: Any
) -> None:
    """It would run without its GPU until that is seen, and may end of that first."""
    starter: Any = sys.modules["starter"]
    restored: list[object] = []
    monkeypatch.setattr(starter, "require_own", lambda names: None)
    monkeypatch.setattr(starter, "restore_images", lambda *asked: restored.append(asked))
    monkeypatch.setattr(starter, "let_go", lambda spec, pids: None)
    spec = {"restore": {"names": [], "gpu_pids": [PID], "pids": [PID], "timeout_s": 1.0}, "output": 1}
    kept = SimpleNamespace(origin=object(), gpus=gpu_state.Gpus(has_devices=False))
    with pytest.raises(gpu_state.GpuError, match="the replay has no GPU"):
        starter.bring_up(spec, kept, lambda *said, **more: None)
    assert restored == []


def test_a_driver_that_crashes_or_hangs_is_an_error(gpu_state: Any) -> None:
    with pytest.raises(gpu_state.GpuError, match="crashed"):
        gpu_state.in_child(lambda: os._exit(139), 10.0)
    with pytest.raises(gpu_state.GpuError, match=r"did not answer within 0\.2 s"):
        gpu_state.in_child(lambda: time.sleep(60), 0.2)
    gpu_state.in_child(lambda: None, 10.0)


def test_the_host_and_the_starter_look_for_the_same(gpu_state: Any) -> None:
    assert (gpu_state.LIBRARY, gpu_state.DEVICES) == (gpu_facts._LIBRARY, gpu_facts._DEVICES)
