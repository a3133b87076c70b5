"""An optimizer that holds its parameters only while it steps: nothing is said of parameters that nobody compared."""

from __future__ import annotations

from pathlib import Path

import pytest
from chain import PARTS, assert_identical, prismdbg, recording, replay
from jobs import torchrun

from prismdbg.jobs.rank_capsule import capsule_of

pytestmark = pytest.mark.job


@pytest.mark.parametrize("kernels", [(), ("--python-kernels",)])
def test_its_rank_replays_from_the_start(tmp_path: Path, kernels: tuple[str, ...]) -> None:
    with recording(torchrun(PARTS / "lends_its_parameters.py", ranks=2), tmp_path, "--window", "all", *kernels) as job:
        ended = job.end()
    assert ended.code == 0, ended.output[-3000:]
    capsule = capsule_of(job.run.path, 1, print)
    verdict = replay(capsule)
    assert_identical(verdict, capsule)
    assert verdict["states"] == []
    assert "parameters" not in prismdbg("replay", capsule, "--runtime", "local").err
