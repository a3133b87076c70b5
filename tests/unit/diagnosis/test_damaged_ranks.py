"""A rank whose log is damaged: what it shows up to there counts, where it breaks off is no wait."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from prismdbg.capsule.log import format as fmt
from prismdbg.diagnosis.stops import Stopped
from prismdbg.diagnosis.why import Diagnosis, diagnose
from prismdbg.jobs.evidence import gather
from tests.tiny_log import TinyLog

DAMAGED_RECORD = b"\x07\0\0\0\x01\0\0\0"
STEPS, DAMAGED_STEP = 9, 5


def diagnosis(run: Path, *, fails: bool) -> Diagnosis:
    """Two ranks; the log of rank 1 breaks off in a call, of which the end, good or not, stands before the damage where
    it `fails`. Rank 0 goes on."""
    for rank in range(2):
        log = TinyLog(run / "ranks" / str(rank), rank)
        log.group("0", (0, 1), "default_pg")
        (log.folder / "rank.json").write_text(json.dumps({"pid": 2**22 + 1, "world_size": 2}))
        for step in range(STEPS):
            call = log.issue(step, 1, seq=step)
            if rank == 1 and step == DAMAGED_STEP:
                if fails:
                    log.complete(call, status=fmt.Status.FAILED)
                log.write(log.offset, DAMAGED_RECORD)
                break
            log.complete(call)
            log.step(step + 1)
        else:
            log.note("exit", code=0)
    (run / "run.json").write_text("{}")
    (run / "supervisor.json").write_text(json.dumps({"exit_code": 0, "ended_wall_ns": 10**18 + 60 * 10**9}))
    return diagnose(gather(run))


@pytest.mark.parametrize("fails", [False, True])
def test_the_cut_of_a_damaged_log_is_no_wait_but_a_failed_call_before_it_is(tmp_path: Path, fails: bool) -> None:
    found = diagnosis(tmp_path, fails=fails)
    stops = [verdict.stall.waiting_ranks for verdict in found.verdicts if isinstance(verdict, Stopped)]
    assert stops == ([(1,)] if fails else [])
    assert any("rank 1" in gap and "damaged at offset" in gap for gap in found.missing)
