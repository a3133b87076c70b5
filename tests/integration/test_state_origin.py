"""Capsules that start at a state snapshot: made without CRIU and without asking the rank, replayed bit for bit."""

from __future__ import annotations

from pathlib import Path

import pytest
from chain import assert_identical, prismdbg, replay
from jobs import ROOT, Recorded, plain_environment, recorded_by_command_line, run, torchrun

from prismdbg.capsule.capsule_dir import Capsule
from prismdbg.capsule.manifest import Origin

pytestmark = pytest.mark.job

HOOKS = plain_environment(PYTHONPATH=str(ROOT / "examples" / "vendored"))
PROGRAM = Path(__file__).parent / "programs" / "stateful_mlp.py"
EVERY = 4
STEPS = 14


def job(*options: object) -> list[str]:
    return torchrun(PROGRAM, "--steps", STEPS, *options, ranks=2)


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    home = tmp_path_factory.mktemp("state")
    made = recorded_by_command_line(job(), home / "run", "--state-every", str(EVERY), env=HOOKS)
    assert made.ended.code == 0, made.ended.output
    return made


def captured(made: Recorded, rank: int, home: Path, *options: object) -> Path:
    capsule = home / f"rank{rank}"
    said = prismdbg("capture", made.run.path, "--rank", rank, "-o", capsule, *options)
    assert said.code == 0, said.err
    return capsule


def test_the_program_is_the_same_recorded_and_bare(recorded: Recorded, tmp_path: Path) -> None:
    bare = run(job(), tmp_path / "bare.txt", env=HOOKS)
    assert bare.lines("rank ") == recorded.ended.lines("rank ")
    assert bare.lines("step ") == recorded.ended.lines("step ")


@pytest.mark.parametrize("rank", [0, 1])
def test_a_rank_goes_on_from_its_snapshot(recorded: Recorded, rank: int, tmp_path: Path) -> None:
    capsule = captured(recorded, rank, tmp_path)
    manifest = Capsule.open(capsule).manifest
    assert (manifest.origin, manifest.contains_raw_memory) == (Origin.STATE, False)
    assert manifest.moment_a.step == 12
    verdict = replay(capsule)
    assert_identical(verdict, capsule)
    assert verdict["states"] and all(state["equal"] for state in verdict["states"])
    assert prismdbg("verify", capsule).code == 0


def test_a_larger_window_begins_at_the_older_snapshot(recorded: Recorded, tmp_path: Path) -> None:
    capsule = captured(recorded, 0, tmp_path, "--window", 4)
    assert Capsule.open(capsule).manifest.moment_a.step == 8
    assert_identical(replay(capsule), capsule)
