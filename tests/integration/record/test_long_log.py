"""A job that has issued more than its log may hold: what is left is whole, and a capsule of it replays."""

from __future__ import annotations

from pathlib import Path

import pytest
from chain import PARTS, assert_identical, prismdbg, recording, replay
from jobs import torchrun

from prismdbg.capsule.capsule_dir import Capsule
from prismdbg.log.columns import read_whole
from prismdbg.log.rank_log import read_log

pytestmark = [pytest.mark.job, pytest.mark.criu]

SEGMENT_BYTES = 4 << 20


def test_a_log_within_its_budget(tmp_path: Path) -> None:
    (tmp_path / "told").mkdir()
    job_line = torchrun(PARTS / "small_collectives.py", tmp_path / "told", ranks=1)
    with recording(job_line, tmp_path, "--log-bytes", "4MiB") as job:
        folder = job.run.ranks / "0"
        job.wait_for_step(0, 1)
        job.wait_for(lambda: read_log(folder).dropped, 240, "the log to have dropped something")
        (tmp_path / "told" / "slow").touch()
        said = prismdbg("capture", job.run.path, "--rank", 0, "--window", 1, "-o", tmp_path / "capsule")
        assert said.code == 0, said.err
        (tmp_path / "told" / "last").touch()
        ended = job.end()
        assert ended.code == 0, ended.output

    log = read_whole(folder)
    status = prismdbg("status", job.run.path, "--json").json
    assert status["ranks"][0]["collectives"] == int(log.record_id[-1]) + 1 > len(log)
    assert sum(path.stat().st_size for path in folder.glob("events.*.seg")) < 3 * SEGMENT_BYTES
    why = prismdbg("why", job.run.path)
    assert "the log of rank 0 begins after" in why.out and "certain" not in why.out

    assert read_log(Capsule.open(tmp_path / "capsule").log).dropped > 0
    assert prismdbg("verify", tmp_path / "capsule").code == 0
    assert_identical(replay(tmp_path / "capsule"), tmp_path / "capsule")
