"""A program that changes its working directory before its first collective, as configuration frameworks do: recorded,
and replayed from where it was started."""

from __future__ import annotations

from pathlib import Path

import pytest
from chain import prismdbg, recording
from jobs import forked

pytestmark = pytest.mark.job

PROGRAM = Path(__file__).parents[1] / "programs" / "moving.py"


@pytest.mark.parametrize("how", ["kept", "removed"])
def test_it_is_replayed_from_where_it_was_started(tmp_path: Path, how: str) -> None:
    with recording(forked(PROGRAM, how, ranks=2), tmp_path, "--window", "all") as job:
        ended = job.end()
    assert [capsule.name for capsule in job.capsules] == ["exception-rank1-0.5"], ended.output[-3000:]
    assert "the supervisor failed" not in ended.output and "is not recorded" not in ended.output
    replayed = prismdbg("replay", job.capsules[0], "--runtime", "local")
    assert replayed.code == 0, replayed.out + replayed.err
    assert "identical up to 0.5: 5 collectives compared" in replayed.out
    told = prismdbg("why", job.run.path)
    assert "rank 1 raised at 0.5: ValueError" in told.out or "ValueError: # prism" in told.out, told.out
