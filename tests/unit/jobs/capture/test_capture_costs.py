"""What a checkpoint will take is said before it is taken."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from prismdbg.errors import FacilityError, RankLost
from prismdbg.jobs.capture import costs

MIB = 1 << 20
HOLDS = """
import mmap, os, sys
held = b"x" * (200 << 20)
shared = mmap.mmap(-1, 100 << 20)
shared[:] = b"x" * len(shared)
above, here = os.pipe()
for _ in range(2):
    if os.fork() == 0:
        os.close(here)
        os.read(above, 1)  # until the parent is gone
        os._exit(0)
print("ready", flush=True)
sys.stdin.read()
"""


@contextmanager
def forked() -> Iterator[int]:
    """A process of 200 MiB and two that it has forked, which share them, and 100 MiB of shared memory."""
    program = [sys.executable, "-c", HOLDS]
    with subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stdin is not None
        assert process.stdout.readline() == b"ready\n"
        yield process.pid
        process.stdin.close()


def test_what_a_fork_shares_is_in_the_image_of_each_process() -> None:
    with forked() as pid:
        assert 700 * MIB <= costs.image_bytes(pid) < 900 * MIB


def test_a_child_that_ends_meanwhile_is_not_the_ranks_end(monkeypatch: pytest.MonkeyPatch) -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        gone = psutil.Process(process.pid)
    monkeypatch.setattr(psutil.Process, "children", lambda _, recursive: [gone])
    assert costs.image_bytes(os.getpid()) > 0
    with pytest.raises(RankLost, match=f"process {gone.pid} cannot be examined"):
        costs.image_bytes(gone.pid)


def test_pages_in_swap_are_in_the_image_and_those_of_files_are_not() -> None:
    rollup = "00-ff ---p 00 00:00 0 [rollup]\nRss: 900 kB\nPss_File: 7 kB\nPss_Shmem: 3 kB\nAnonymous: 20 kB\n"
    assert costs.bytes_of(f"{rollup}Private_Clean: 9 kB\nSwap: 100 kB\nSwapPss: 50 kB\n") == 123 << 10


def test_what_the_rank_has_on_its_gpu_is_in_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(costs, "image_bytes", lambda pid: 100 * MIB)
    monkeypatch.setattr(costs, "require_room", lambda pid: 2000 * MIB)
    assert costs.predict_image(os.getpid(), tmp_path / "new") == "the checkpoint will take about 2100 MiB"
    monkeypatch.setattr(costs, "require_room", lambda pid: 1 << 60)
    with pytest.raises(FacilityError, match=f"and {tmp_path} has"):
        costs.predict_image(os.getpid(), tmp_path / "new")
