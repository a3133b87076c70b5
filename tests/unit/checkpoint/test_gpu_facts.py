"""What is read of a GPU's driver."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from prismdbg.checkpoint import gpu_facts, gpu_part
from prismdbg.checkpoint.engine import GpuPart
from prismdbg.errors import CapsuleError, FacilityError

UUID = "GPU-80d98ec6-15a5-45d0-de51-0f384ddb3e13"
VERSION = (
    "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.04  Release Build  (nixbld@)\n"
    "GCC version:  gcc version 15.3.0 (GCC)\n"
)
INFORMATION = f"Model: \t\t NVIDIA H200\nIRQ:   \t\t 41\nGPU UUID: \t {UUID}\nDevice Minor: \t 0\nGPU Excluded:\t No\n"


@pytest.fixture
def of_driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """As the driver showed it on a machine with one H200."""
    (tmp_path / "gpus" / "0000:00:06.0").mkdir(parents=True)
    (tmp_path / "version").write_text(VERSION)
    (tmp_path / "gpus" / "0000:00:06.0" / "information").write_text(INFORMATION)
    monkeypatch.setattr(gpu_facts, "_DRIVER", tmp_path)
    return tmp_path


def test_the_driver_names_its_version_and_gpus(of_driver: Path) -> None:
    assert gpu_facts.driver_version() == "580.159.04"
    assert gpu_facts.uuids() == {"0": UUID}


def test_a_machine_without_the_driver_has_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_facts, "_DRIVER", tmp_path / "none")
    assert (gpu_facts.driver_version(), gpu_facts.uuids()) == ("", {})
    assert gpu_facts.held_bytes(os.getpid()) == 0


@pytest.mark.parametrize(
    ("part", "said"),
    [
        (("570.86.15", (UUID,)), "saved with NVIDIA's driver 570.86.15; this machine has 580.159.04"),
        (("580.159.04", ("GPU-1", UUID)), "has the state of GPU-1, which this machine lacks"),
    ],
)
def test_the_state_of_a_gpu_needs_that_gpu(of_driver: Path, part: tuple[str, tuple[str, ...]], said: str) -> None:
    gpu_part.require_gpus(GpuPart(pids=(7,), driver="580.159.04", gpus=(UUID,)))
    with pytest.raises(FacilityError, match=said):
        gpu_part.require_gpus(GpuPart(pids=(7,), driver=part[0], gpus=part[1]))


def test_what_is_saved_is_read_again(tmp_path: Path) -> None:
    part = GpuPart(pids=(7, 9), driver="580.159.04", gpus=(UUID,))
    assert gpu_part.read_part(tmp_path, [7]) is None
    gpu_part.save_part(tmp_path, part)
    assert gpu_part.read_part(tmp_path, [7, 8, 9]) == part


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[" * 100_000,
        "[]",
        "{}",
        json.dumps({"pids": [], "driver": "", "gpus": []}),
        json.dumps({"pids": [8], "driver": "", "gpus": []}),
        json.dumps({"pids": [True], "driver": "", "gpus": []}),
        json.dumps({"pids": ["7"], "driver": "", "gpus": []}),
        json.dumps({"pids": [[7]], "driver": "", "gpus": []}),
        json.dumps({"pids": [1], "driver": "\x1b[2J", "gpus": []}),
        json.dumps({"pids": [1], "driver": "", "gpus": ["a b"]}),
        json.dumps({"pids": [1], "driver": "", "gpus": [1]}),
        json.dumps({"pids": [1], "driver": "", "gpus": []}) + " " * (1 << 20) + "x",
    ],
)
def test_an_altered_part_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / gpu_part.PART).write_text(text)
    with pytest.raises(CapsuleError):
        gpu_part.read_part(tmp_path, [1, 7])


def test_a_link_or_a_pipe_in_its_place_is_refused(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").write_text("{}")
    (tmp_path / gpu_part.PART).symlink_to("elsewhere")
    with pytest.raises(CapsuleError):
        gpu_part.read_part(tmp_path, [7])
    (tmp_path / gpu_part.PART).unlink()
    os.mkfifo(tmp_path / gpu_part.PART)
    with pytest.raises(CapsuleError):
        gpu_part.read_part(tmp_path, [7])
