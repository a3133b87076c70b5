"""A job forked from a warm process has the parents, the exit code and the texts in /proc of one that is started."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import psutil
import pytest
import warm_jobs
from chain import recording
from jobs import forked, plain_environment
from waiting import wait_for

pytestmark = pytest.mark.job

WAITS_AND_FAILS = """
import sys, time
from pathlib import Path
import torch.distributed as dist
dist.init_process_group("gloo")
dist.barrier()
end = time.monotonic() + 60
while not Path(sys.argv[1]).exists() and time.monotonic() < end:
    time.sleep(0.02)
sys.exit(3)
"""


def test_a_forked_job_is_what_a_started_one_is(tmp_path: Path) -> None:
    program, told = tmp_path / "program.py", tmp_path / "told"
    program.write_text(WAITS_AND_FAILS)
    line = forked(program, told, ranks=2)
    with recording(line, tmp_path, "--window", "0", env=plain_environment(OF_THE_TEST="1")) as job:
        assert isinstance(job.job.process, warm_jobs.Process)
        job.wait_until_watched(0, 1)
        (launcher,) = job.job.process.children()
        assert launcher.cmdline() == line
        assert launcher.environ()["OF_THE_TEST"] == "1" and "PRISMDBG_CONFIG" in launcher.environ()
        assert {one.pid for one in launcher.children()} == {job.pid(0), job.pid(1)}
        assert job.job.process.cmdline()[-len(line) :] == line
        assert os.getsid(launcher.pid) == job.job.process.pid
        told.touch()
        assert job.end().code == 1  # as forked_ranks.py ends when a rank fails
        wait_for(lambda: not psutil.pid_exists(launcher.pid), 20, "the launcher to be gone")


@pytest.mark.parametrize(
    "changed",
    [{"PYTHONHASHSEED": "1"}, {"LD_PRELOAD": "x.so"}, {"MALLOC_PERTURB_": "1"}, {"TORCH_SHOW_CPP_STACKTRACES": "1"}],
)
def test_what_a_process_reads_at_its_start_takes_a_new_one(changed: dict[str, str]) -> None:
    line, usual = forked(Path("program.py"), ranks=2), plain_environment()
    assert warm_jobs.can_start(line, usual, usual)
    assert not warm_jobs.can_start(line, {**usual, **changed}, usual)
    assert not warm_jobs.can_start([sys.executable, *line[2:]], usual, usual)
