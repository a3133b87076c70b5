"""A rank that computes with what clocks tell it: a replay gives it what they told the recorded rank."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from chain import assert_identical, prismdbg, recording, replay
from jobs import ROOT, plain_environment, torchrun

pytestmark = pytest.mark.job

PROGRAM = Path(__file__).parents[1] / "programs" / "timed.py"
RANK, OPTIONS = 1, ("--window", "all", "--state-every", "4")
ENVIRONMENT = plain_environment(PYTHONPATH=f"{ROOT / 'examples' / 'vendored'}")
LOCAL, DOCKER = "local", pytest.param("docker", marks=pytest.mark.docker)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Path], list[str]]:
    """Capsules by origin, and what the recorded rank printed."""
    home = tmp_path_factory.mktemp("timed")
    with recording(torchrun(PROGRAM, 12, ranks=2), home, *OPTIONS, env=ENVIRONMENT) as job:
        ended = job.end()
        assert ended.code == 0, ended.output[-3000:]
        capsules = {origin: home / f"{origin}.capsule" for origin in ("start", "state")}
        for origin, capsule in capsules.items():
            said = prismdbg("capture", job.run.path, "--rank", RANK, "--origin", origin, "-o", capsule)
            assert said.code == 0, said.err
        return capsules, printed(ended.output)


def printed(text: str) -> list[str]:
    return re.findall(rf"rank {RANK} step .*", text)


@pytest.mark.parametrize(
    ("origin", "runtime"),
    [("start", LOCAL), ("state", LOCAL), pytest.param("start", *DOCKER.values, marks=DOCKER.marks)],
)
def test_it_is_told_the_times_of_the_recorded_rank(
    made: tuple[dict[str, Path], list[str]], origin: str, runtime: str
) -> None:
    capsules, lines = made
    verdict = replay(capsules[origin], runtime=runtime)
    assert_identical(verdict, capsules[origin])
    again = printed(verdict["output"])
    assert again and again == lines[-len(again) :]


@pytest.mark.criu
def test_a_restored_rank_is_told_them_too(tmp_path: Path) -> None:
    """Captured by hand: from then on they are recorded."""
    with recording(torchrun(PROGRAM, 1 << 40, ranks=2), tmp_path, env=ENVIRONMENT) as job:
        job.wait_for_step(RANK, 3)
        capsule = tmp_path / "image.capsule"
        said = prismdbg("capture", job.run.path, "--rank", RANK, "--origin", "image", "-o", capsule)
        assert said.code == 0, said.err
        job.stop()
    verdict = replay(capsule)
    assert_identical(verdict, capsule)
    assert verdict["tally"]["compared"] > 0
