"""`prismdbg capture --wait` and `--at STEP` of a job that really runs, from before it is there."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from chain import CLI, recording, replay
from jobs import EXAMPLES, forked, plain_environment
from waiting import wait_for

from prismdbg.capsule.capsule_dir import Capsule

pytestmark = pytest.mark.job
STEP = 4


@pytest.mark.parametrize("option", [("--wait",), ("--at", STEP)])
def test_a_job_that_has_not_begun_is_captured_once_it_is_there(tmp_path: Path, option: tuple[object, ...]) -> None:
    run, capsule, said = tmp_path / "run", tmp_path / "capsule", tmp_path / "said"
    line = [*CLI, "capture", run, "--rank", 1, *option, "--origin", "start", "-o", capsule]
    with said.open("wb") as sink:
        capture = subprocess.Popen(list(map(str, line)), env=plain_environment(), stdout=sink, stderr=sink)
    try:
        wait_for(lambda: "it has not started" in said.read_text(), 60, "the capture to wait")
        program = forked(EXAMPLES / "train_ddp.py", "--size", "tiny", "--steps", 100_000, ranks=2)
        with recording(program, tmp_path, "--window", "all") as job:
            job.wait_for(lambda: capture.poll() is not None, 180, "the capture to end")
            assert capture.returncode == 0, said.read_text()
            job.stop()
    finally:
        capture.kill()
        capture.wait()
    made = Capsule.open(capsule).manifest
    assert made.moment_b.step >= (STEP if "--at" in option else 0)
    verdict = replay(capsule)
    assert verdict["outcome"] == "identical" and verdict["strength"]["fingerprints"] > 0
