"""A checkpoint falls due as a rank stops to answer: the supervisor sees the hang as it would without checkpoints."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import psutil
import pytest
from chain import PARTS, recording
from jobs import forked
from waiting import wait_for

pytestmark = [pytest.mark.job, pytest.mark.criu]

HANG_S = 4
SOON_S = 20.0  # with what a busy machine adds; a rank was waited for 60 s


@pytest.mark.parametrize("how", ["gil", "sleep"])
def test_a_hang_is_seen_in_time_though_a_checkpoint_is_due(how: str, tmp_path: Path) -> None:
    """Rank 1 stands after step 5, with Python's lock or without, and a checkpoint is due at step 5."""
    options = ("--checkpoint-every", 5, "--trigger", f"hang={HANG_S}", "--keep", 0)
    with recording(forked(PARTS / "astray.py", how, ranks=2), tmp_path, *options) as job:
        job.wait_for_step(0, 5)
        since = time.monotonic()
        (incident,) = job.wait_for(lambda: job.supervisor.get("incidents"), 100, "the hang to be seen")
        assert time.monotonic() - since < SOON_S, job.supervisor
        assert incident["kind"] == "hang" and "rank 1 never joined it" in incident["text"]


def test_a_stopped_rank_is_a_hang_and_goes_on_unparked(tmp_path: Path) -> None:
    options = ("--checkpoint-every", 1, "--trigger", f"hang={HANG_S}", "--keep", 0)
    with recording(forked(PARTS / "until_told.py", tmp_path, 0.1, ranks=2), tmp_path, *options) as job:
        job.wait_for(lambda: job.supervisor.get("checkpoints"), 100, "the first checkpoint")
        process = psutil.Process(job.pid(1))
        os.kill(process.pid, signal.SIGSTOP)
        try:
            since = time.monotonic()
            (incident,) = job.wait_for(lambda: job.supervisor.get("incidents"), 100, "the hang to be seen")
            assert time.monotonic() - since < SOON_S, job.supervisor
            assert incident["kind"] == "hang"
        finally:
            os.kill(process.pid, signal.SIGCONT)
        step, taken = job.step(1), len(job.supervisor["checkpoints"])
        job.wait_for_step(1, step + 4, 20)
        wait_for(lambda: len(job.supervisor["checkpoints"]) > taken, 60, "checkpoints to be taken again")
        assert job.stop().code != 0
