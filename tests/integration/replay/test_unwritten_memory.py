"""`record --zero-memory`: what a program sends without having written it is zeros, in the job and in each replay."""

from __future__ import annotations

from pathlib import Path

import pytest
from chain import prismdbg, recording
from jobs import forked

pytestmark = pytest.mark.job

PROGRAM = Path(__file__).parents[1] / "programs" / "unwritten.py"


@pytest.mark.parametrize("options", [("--zero-memory",), ()], ids=["zeros", "as it is"])
def test_unwritten_memory_is_the_same_in_a_replay_where_it_is_filled(tmp_path: Path, options: tuple[str, ...]) -> None:
    with recording(forked(PROGRAM, ranks=2), tmp_path, "--window", "all", *options) as job:
        ended = job.end()
    assert len(job.capsules) == 1, ended.output[-3000:]
    replayed = prismdbg("replay", job.capsules[0], "--runtime", "local")
    if options:
        assert replayed.code == 0 and "6 collectives compared" in replayed.out, replayed.out + replayed.err
    else:
        assert replayed.code == 5 and "record --zero-memory fills it" in replayed.out, replayed.out + replayed.err
