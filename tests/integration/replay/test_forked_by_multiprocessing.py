"""Ranks that multiprocessing forked are replayed from the program's start: the program goes on as the rank where it
would fork it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from chain import prismdbg, recording

pytestmark = pytest.mark.job

PROGRAM = Path(__file__).parents[1] / "programs" / "forks_ranks.py"


@pytest.fixture(scope="module")
def failed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A capsule of rank 1, made when its function raised behind its second collective."""
    home = tmp_path_factory.mktemp("forked")
    with recording([sys.executable, str(PROGRAM), str(home / "met"), "direct", "fail"], home, "--window", "all") as job:
        ended = job.job.wait()
    assert ended.code == 1, ended.output
    (capsule,) = job.capsules
    assert capsule.name == "exception-rank1-0.2"
    return capsule


@pytest.mark.parametrize("runtime", ["local", pytest.param("docker", marks=pytest.mark.docker)])
def test_one_that_raised_raises_again(failed: Path, runtime: str) -> None:
    replayed = prismdbg("replay", failed, "--runtime", runtime)
    assert replayed.code == 0, replayed.out + replayed.err
    assert "identical up to 0.2: 2 collectives compared, 2 with their payload fingerprints" in replayed.out
    assert "recorded as: ValueError: a shard is missing" in replayed.err


@pytest.mark.criu
def test_the_debugger_goes_both_ways(failed: Path) -> None:
    said = prismdbg("debug", failed, "--runtime", "local", "--plain", typed="n\nn\nback\nprint x\n")
    assert said.code == 0, said.out + said.err
    there, _, back = said.out.partition("stopped at 0.1 (back)")
    assert "stopped at 0.2" in there and "forks_ranks.py:26 in train" in back and "[4]" in back, said.out


def ended_well(how: str, tmp_path: Path) -> Path:
    """A capsule of rank 0 from the program's start."""
    line = [sys.executable, str(PROGRAM), str(tmp_path / "met"), how]
    with recording(line, tmp_path, "--window", "all") as job:
        ended = job.job.wait()
    assert ended.code == 0 and "problem" not in ended.output, ended.output
    capsule = tmp_path / "rank0.capsule"
    captured = prismdbg("capture", job.run.path, "--rank", 0, "--origin", "start", "-o", capsule)
    assert captured.code == 0, captured.err
    return capsule


@pytest.mark.parametrize("how", ["nested", "torch"])
def test_one_that_ended_well_does_so_again(how: str, tmp_path: Path) -> None:
    replayed = prismdbg("replay", ended_well(how, tmp_path), "--runtime", "local")
    assert replayed.code == 0, replayed.out + replayed.err
    assert "identical up to 0.3: 3 collectives compared" in replayed.out


@pytest.mark.criu
def test_one_that_is_restored_is_not_ended_with_its_parent(tmp_path: Path) -> None:
    """torch asks for a signal when that ends."""
    capsule = ended_well("torch", tmp_path)
    said = prismdbg("debug", capsule, "--runtime", "local", "--plain", typed="n\nn\nback\nn\n")
    assert said.code == 0, said.out + said.err
    _, _, back = said.out.partition("stopped at 0.1 (back)")
    assert "stopped at 0.2 (next)" in back and "KeyboardInterrupt" not in said.out, said.out
