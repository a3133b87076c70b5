"""DataLoader workers belong to their rank: dumped with it, restored with it, and they go on delivering."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from counting import Counting, ask, capture, image_spec, short_folder
from jobs import plain_environment
from waiting import wait_for

from prismdbg.checkpoint import bundle
from prismdbg.runtime.local_runtime import LocalRuntime

SCRIPT = Path(__file__).parents[2] / "loader_rank.py"
WORKERS = 2  # of loader_rank.py
pytestmark = [pytest.mark.job, pytest.mark.criu]


def test_workers_are_restored_with_their_rank() -> None:
    with short_folder() as home, short_folder() as capsule, short_folder() as session:
        (home / "agents").mkdir()
        with (home / "printed").open("wb") as printed:
            process = subprocess.Popen(
                [sys.executable, str(SCRIPT), str(home / "agents" / "rank")],
                env=plain_environment(),
                cwd=home,
                stdin=subprocess.DEVNULL,
                stdout=printed,
                stderr=printed,
                start_new_session=True,
            )
        try:
            one = Counting(home=home, process=process)
            # A worker that is forked while somebody asks holds that connection open.
            wait_for(lambda: len(psutil.Process(process.pid).children()) == WORKERS, 90, "the workers")
            wait_for(lambda: ask(one.socket, "count", 90)["count"] > 10, 90, "ten batches")
            taken = capture(bundle.find(), one, capsule)
            assert len(taken.image.pids) >= 3
            assert not [file for file in taken.files if file.target.startswith("/dev/shm")], "it is in the image"
            spec, socket = image_spec(taken, session)
            rank = LocalRuntime().start(spec)
            try:
                first = ask(socket, "count")["count"]
                assert first >= taken.count
                # More than the workers had prepared before the dump.
                wait_for(lambda: ask(socket, "count")["count"] > first + 30, 60, "the workers to go on")
            finally:
                rank.kill()
            assert process.poll() is None
        finally:
            _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    children = psutil.Process(process.pid).children(recursive=True)
    process.kill()
    process.wait()
    for child in children:
        with contextlib.suppress(psutil.NoSuchProcess):  # one that has ended with its rank
            child.kill()
