"""A program that seeds nothing is replayed from its start as it ran, for its random generators begin as they did."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from chain import Taken, assert_identical, prismdbg, recording, replay
from jobs import torchrun

pytestmark = pytest.mark.job

PROGRAMS = Path(__file__).parents[1] / "programs"
RUNTIMES = ["local", pytest.param("docker", marks=pytest.mark.docker)]
RANK = 1


@pytest.fixture(
    scope="module",
    params=[("unseeded_parallel", 2), ("unseeded_shards", 2), ("unseeded_blocks", 4)],
    ids=lambda param: param[0],
)
def unseeded(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Taken:
    name, ranks = request.param
    home = tmp_path_factory.mktemp(name)
    with recording(torchrun(PROGRAMS / f"{name}.py", ranks=ranks), home, "--window", "all") as job:
        ended = job.end()
        assert ended.code == 0, ended.output[-3000:]
        said = prismdbg("capture", job.run.path, "--rank", RANK, "--origin", "start", "-o", home / "start")
        assert said.code == 0, said.err
        return Taken(recording=job, ended=ended, capsule=home / "start")


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_what_seeds_nothing_runs_again_as_it_ran(unseeded: Taken, runtime: str) -> None:
    verdict = replay(unseeded.capsule, runtime=runtime)
    assert_identical(verdict, unseeded.capsule)
    printed = re.findall(rf"rank {RANK} step .*", unseeded.ended.output)
    assert printed and re.findall(rf"rank {RANK} step .*", verdict["output"]) == printed
