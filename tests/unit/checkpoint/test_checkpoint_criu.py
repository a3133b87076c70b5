"""Driving criu, with programs in its place that refuse, hang or are killed."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from prismdbg.checkpoint.bundle import Criu
from prismdbg.checkpoint.criu import dump
from prismdbg.errors import CheckpointError, CheckpointTooSlow


def playing_criu(folder: Path, script: str) -> Criu:
    program = folder / "loader"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o700)
    return Criu(folder=folder, version="4.2", loader="loader", program="criu", libraries="lib", bindings="python")


def test_the_decisive_line_of_its_log_becomes_the_error(tmp_path: Path) -> None:
    images = tmp_path / "images"
    line = "Error (criu/sk-inet.c:1): Can't get 1:16 opt: Operation not supported"
    criu = playing_criu(tmp_path, f'echo "(00.01) {line}" > {images}/dump.log; exit 1')
    with pytest.raises(CheckpointError, match=f"dump process {os.getpid()}: Can't get 1:16 opt") as caught:
        dump(criu, os.getpid(), images, leave_running=True, timeout_s=20)
    assert "too old" in caught.value.hint


def test_without_a_log_its_output_is_the_reason(tmp_path: Path) -> None:
    criu = playing_criu(tmp_path, "echo cannot load libc; exit 127")
    with pytest.raises(CheckpointError, match="cannot load libc"):
        dump(criu, os.getpid(), tmp_path / "images", leave_running=True, timeout_s=20)


def test_one_that_hangs_is_killed_when_its_time_is_up(tmp_path: Path) -> None:
    criu = playing_criu(tmp_path, f"echo $$ > {tmp_path}/pid; exec sleep 1000")
    began = time.monotonic()
    with pytest.raises(CheckpointTooSlow, match=f"process {os.getpid()} was not complete within 1 s") as caught:
        dump(criu, os.getpid(), tmp_path / "images", leave_running=True, timeout_s=1)
    assert "status" in caught.value.hint and "faster disk" in caught.value.hint
    assert time.monotonic() - began < 20
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)


def test_a_process_that_has_ended_is_told_so(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="has ended"):
        dump(playing_criu(tmp_path, "exit 0"), 2**22 + 1, tmp_path / "images", leave_running=True, timeout_s=5)


@pytest.mark.parametrize(("keep", "given"), [(True, True), (False, False)])
def test_only_a_rank_that_goes_on_is_left_running(tmp_path: Path, keep: bool, given: bool) -> None:
    criu = playing_criu(tmp_path, f'echo "$@" > {tmp_path}/given; exit 1')
    with pytest.raises(CheckpointError):
        dump(criu, os.getpid(), tmp_path / "images", leave_running=keep, timeout_s=5)
    options = (tmp_path / "given").read_text().split()
    assert ("--leave-running" in options) is given
    assert options[options.index("--tree") + 1] == str(os.getpid())


@pytest.mark.parametrize(("timeout_s", "freezing_s"), [(20.0, "18"), (2000.0, "88")])
def test_its_own_bound_is_that_of_freezing_alone(tmp_path: Path, timeout_s: float, freezing_s: str) -> None:
    """It ends before a page is written: a large process needs no longer to stand still."""
    criu = playing_criu(tmp_path, f'echo "$@" > {tmp_path}/given; exit 1')
    with pytest.raises(CheckpointError):
        dump(criu, os.getpid(), tmp_path / "images", leave_running=True, timeout_s=timeout_s)
    options = (tmp_path / "given").read_text().split()
    assert options[options.index("--timeout") + 1] == freezing_s
