"""Parameters at the program's end: a difference that no collective shows is found, and nothing is said of parameters
that nobody compared."""

from __future__ import annotations

from pathlib import Path

import pytest
from chain import PARTS, prismdbg, recording, replay, span
from jobs import forked

from prismdbg.jobs.rank_capsule import capsule_of

pytestmark = pytest.mark.job


@pytest.mark.parametrize("kernels", [(), ("--python-kernels",)])
def test_a_difference_after_the_last_collective_is_found(tmp_path: Path, kernels: tuple[str, ...]) -> None:
    job_line = forked(PARTS / "changes_after_its_last_collective.py", ranks=2)
    with recording(job_line, tmp_path, "--window", "all", *kernels) as job:
        ended = job.end()
    assert ended.code == 0, ended.output[-3000:]
    verdict = replay(capsule_of(job.run.path, 1, print), code=5)
    assert verdict["outcome"] == "diverged"
    assert [state["equal"] for state in verdict["states"]] == [False]


@pytest.mark.parametrize("kernels", [(), ("--python-kernels",)])
def test_an_optimizer_that_holds_none_at_the_end_has_none_compared(tmp_path: Path, kernels: tuple[str, ...]) -> None:
    with recording(forked(PARTS / "lends_its_parameters.py", ranks=2), tmp_path, "--window", "all", *kernels) as job:
        ended = job.end()
    assert ended.code == 0, ended.output[-3000:]
    capsule = capsule_of(job.run.path, 1, print)
    said = prismdbg("replay", capsule, "--runtime", "local")
    assert said.code == 0 and said.out.startswith("identical"), said.out + said.err
    assert f"{len(span(capsule))} collectives compared" in said.out and "parameters" not in said.out + said.err
