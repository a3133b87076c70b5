"""`make gpu`, rehearsed: its programs and checks work before a GPU is at hand."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from jobs import ROOT, plain_environment, run

pytestmark = pytest.mark.job

CHECKS = ("start_origin", "state_origin")
BOUND_S = 500.0


def test_the_checks_of_a_gpu_are_rehearsed_on_the_cpu(tmp_path: Path) -> None:
    chosen = [word for check in CHECKS for word in ("--only", check)]
    line = [sys.executable, "-m", "tests.gpu", "--rehearse", *chosen, "-o", str(tmp_path / "page.md")]
    ended = run(line, tmp_path / "output.txt", env=plain_environment(), cwd=ROOT, bound_s=BOUND_S)
    assert ended.code == 0, ended.output
    assert [f"{check}: passed" in ended.output for check in CHECKS] == [True, True], ended.output
    assert ended.output.count("runtime local: identical up to") == 3, ended.output
    assert not (tmp_path / "page.md").exists(), "figures of a CPU are not those of a GPU"
