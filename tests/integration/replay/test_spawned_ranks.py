"""A rank that torch.multiprocessing.spawn started, and that raised: it is captured, replayed from the program's start,
stepped through and edited as any other."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest
from chain import Said, prismdbg, recording

pytestmark = pytest.mark.job

PROGRAM = Path(__file__).parents[1] / "programs" / "spawned.py"
FAILS = '        raise ValueError("a shard is missing")\n'


@pytest.fixture(scope="module")
def capsule(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of rank 1, made when it raised behind its third collective. Its program lies where no other file does."""
    home = tmp_path_factory.mktemp("spawned")
    program = home / "job" / "train.py"
    program.parent.mkdir()
    shutil.copyfile(PROGRAM, program)
    with recording([sys.executable, str(program), str(home / "met"), "fail"], home, "--window", "all") as job:
        ended = job.job.wait()
    assert ended.code == 1 and "ValueError: a shard is missing" in ended.output, ended.output
    (capsule,) = job.capsules
    assert capsule.name == "exception-rank1-0.3"
    return capsule


@pytest.mark.parametrize("runtime", ["local", pytest.param("docker", marks=pytest.mark.docker)])
def test_it_ends_as_it_ended(capsule: Path, runtime: str) -> None:
    replayed = prismdbg("replay", capsule, "--runtime", runtime)
    assert replayed.code == 0, replayed.out + replayed.err
    assert "identical up to 0.3: 3 collectives compared" in replayed.out
    assert "recorded as: ValueError: a shard is missing" in replayed.err
    verified = prismdbg("verify", capsule)
    assert verified.code == 0, verified.out + verified.err


@pytest.mark.criu
def test_the_debugger_goes_both_ways(capsule: Path) -> None:
    said = prismdbg("debug", capsule, "--runtime", "local", "--plain", typed="n\nn\nback\nprint x\n")
    assert said.code == 0, said.out + said.err
    there, _, back = said.out.partition("stopped at 0.1 (back)")
    assert "stopped at 0.2" in there and "train.py:14 in train" in back and "min 3  max 3" in back, said.out


def test_an_edited_program_is_started_in_the_same_way(capsule: Path, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(PROGRAM.read_text().replace(FAILS, "        pass\n"))
    said = prismdbg("replay", capsule, "--runtime", "local", "--source", tmp_path)
    assert said.code == 0, said.out + said.err
    assert "result 1 12.0" in said.err and "it continued to 0.4" in said.out, said.out


SHARES = PROGRAM.with_name("shares.py")


def replayed_of(how: str, home: Path) -> Said:
    """Of rank 1, which shared objects with the process that started it."""
    with recording([sys.executable, str(SHARES), str(home / "met"), how], home, "--window", "all") as job:
        ended = job.job.wait()
    assert ended.code == 0 and "problem" not in ended.output, ended.output
    capsule = home / "rank1.capsule"
    captured = prismdbg("capture", job.run.path, "--rank", 1, "--origin", "start", "-o", capsule)
    assert captured.code == 0, captured.err
    return prismdbg("replay", capsule, "--runtime", "local")


@pytest.mark.parametrize(("how", "end"), [("plain", "0.4"), ("elastic", "0.3")])
def test_one_that_shares_queues_and_events_with_its_parent_waits_for_nobody(how: str, end: str, tmp_path: Path) -> None:
    replayed = replayed_of(how, tmp_path)
    assert replayed.code == 0, replayed.out + replayed.err
    assert f"identical up to {end}" in replayed.out


def test_one_that_asks_a_queue_is_not_told_that_it_diverged(tmp_path: Path) -> None:
    replayed = replayed_of("asks", tmp_path)
    assert replayed.code == 7, replayed.out + replayed.err
    assert "inconclusive: the program raised RuntimeError: prismdbg: not in the recording of this rank" in replayed.out
