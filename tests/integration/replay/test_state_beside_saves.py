"""A program that saves training checkpoints in a thread: no snapshot is taken while a save runs, because a replay from
there would lack the thread that ends it."""

from __future__ import annotations

from pathlib import Path

import pytest
from chain import assert_identical, prismdbg, replay
from jobs import ROOT, forked, plain_environment, recorded_by_command_line

from prismdbg.capsule.capsule_dir import Capsule

pytestmark = pytest.mark.job

PROGRAM = Path(__file__).parent.parent / "programs" / "saves_meanwhile.py"
HOOKS = plain_environment(PYTHONPATH=str(ROOT / "examples" / "vendored"))


def test_a_snapshot_waits_for_the_end_of_a_save(tmp_path: Path) -> None:
    """The next save, which begins after it, is compared like everything else."""
    job = forked(PROGRAM, ranks=2)
    made = recorded_by_command_line(job, tmp_path / "run", "--state-every", "4", env=HOOKS)
    assert made.ended.code == 0, made.ended.output
    capsule = tmp_path / "capsule"
    said = prismdbg("capture", made.run.path, "--rank", 1, "-o", capsule, "--window", 0)
    assert said.code == 0, said.err
    verdict = replay(capsule)
    assert_identical(verdict, capsule)
    assert Capsule.open(capsule).manifest.moment_a.step == 10
