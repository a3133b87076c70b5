"""A job that has issued more than its log may hold: what is left is whole, and capsules of it replay."""

from __future__ import annotations

from pathlib import Path

import pytest
from chain import PARTS, assert_identical, prismdbg, recording, replay
from jobs import forked

from prismdbg.capsule.capsule_dir import Capsule
from prismdbg.capsule.log.reader import event_segments
from prismdbg.capsule.manifest import IncidentKind, Origin
from prismdbg.log.columns import read_columns, read_whole
from prismdbg.log.rank_log import read_log
from prismdbg.log.summary import summarized

pytestmark = [pytest.mark.job, pytest.mark.criu]

SEGMENT_BYTES = 4 << 20


def test_a_log_within_its_budget(tmp_path: Path) -> None:
    (tmp_path / "told").mkdir()
    job_line = forked(PARTS / "small_collectives.py", tmp_path / "told", ranks=1)
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


def test_an_incident_of_a_job_whose_log_was_folded(tmp_path: Path) -> None:
    """Checkpoints lie within what is kept; a rank knows nothing of all this."""
    (tmp_path / "told").mkdir()
    job_line = forked(PARTS / "small_collectives.py", tmp_path / "told", ranks=2)
    with recording(job_line, tmp_path, "--log-bytes", "4MiB", "--checkpoint-every", "20") as job:
        job.wait_for_step(1, 1)
        folders = [job.run.ranks / name for name in ("0", "1")]
        job.wait_for(lambda: all(map(was_folded, folders)), 400, "both logs to be folded")
        (tmp_path / "told" / "slow").touch()
        (tmp_path / "told" / "nan").touch()
        job.wait_for(lambda: job.capsules, 240, "a capsule of the NaN")
        (tmp_path / "told" / "last").touch()
        ended = job.end()
        assert ended.code == 0, ended.output

    for folder in folders:
        log = read_columns(folder)
        assert log.unknown == 0 and log.summary["first_step"].min() == 0
        assert summarized(folder, event_segments(folder)) == event_segments(folder)[-2][0]
        assert len(log) + log.summary["collectives"].sum() >= int(log.record_id[-1]) + 1
    (capsule,) = job.capsules
    manifest = Capsule.open(capsule).manifest
    assert (manifest.rank, manifest.incident.kind, manifest.origin) == (1, IncidentKind.NAN, Origin.IMAGE)
    assert read_log(Capsule.open(capsule).log).dropped > 0
    why = prismdbg("why", job.run.path)
    assert "certain: rank 1 sent the first NaN or Inf" in why.out, why.out
    assert "a summary of steps 0 to " in why.out
    assert prismdbg("verify", capsule).code == 0
    assert_identical(replay(capsule), capsule)


def was_folded(folder: Path) -> bool:
    return any(number > 1 for number, _ in event_segments(folder)[1:2])
