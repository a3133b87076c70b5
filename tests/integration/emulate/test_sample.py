"""`prismdbg sample` of programs that communicate in their backward pass."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from chain import prismdbg

from prismdbg.predict.samples.sample_folder import read_folder

PROGRAM = Path(__file__).parents[1] / "programs" / "sampled.py"
pytestmark = pytest.mark.job


@pytest.mark.parametrize(("kind", "more"), [("ddp", "mm"), ("fsdp2", "all_gather_copy_in")])
def test_a_rank_under_ddp_or_fsdp_is_sampled(tmp_path: Path, kind: str, more: str) -> None:
    ops = tmp_path / "ops"
    job = [sys.executable, PROGRAM, kind]
    said = prismdbg("sample", "-o", ops, "--mesh", "dp=2", "--budget", "3s", "--", *job, bound_s=300)
    assert said.code == 0, said.err
    found = read_folder(ops)
    assert {"addmm", "mm", more} <= set(found)
    assert {64.0} <= set(found["mm"].columns["n"]) and len(found["addmm"]) >= 1


def test_a_program_that_fails_is_not_sought_in_a_folder_that_is_gone(tmp_path: Path) -> None:
    job = [sys.executable, PROGRAM.with_name("emulated_steps.py"), 1, 7]
    said = prismdbg("sample", "-o", tmp_path / "ops", "--mesh", "dp=2", "--", *job, bound_s=300)
    assert said.code == 6 and "last line of rank 0" in said.out + said.err, said.err
    assert "try: see its output above; prismdbg emulate" in said.err and "prismdbg-sample-" not in said.err
