"""A job of Ray Train: Ray starts the workers, keeps what they raise, and kills them at the end."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest
from chain import prismdbg
from jobs import plain_environment, recorded_by_command_line

PROGRAM = Path(__file__).parent / "programs" / "trains_with_ray.py"
pytestmark = pytest.mark.parametrize("row", ["transformers"])  # of the table: the environment in which this runs


def record(folder: Path, *options: str, raises: int = -1) -> tuple[Path, int]:
    if importlib.util.find_spec("ray") is None:
        pytest.skip("ray is not installed: `make frameworks` installs it")
    line = [sys.executable, str(PROGRAM), str(folder / "results"), str(raises)]
    made = recorded_by_command_line(line, folder / "run", *options, env=plain_environment(), bound_s=600)
    return made.run.path, made.ended.code


def test_a_job_that_ends_well_has_no_incident(row: str, tmp_path: Path) -> None:
    run, code = record(tmp_path, "--window", "all")
    assert code == 0
    said = prismdbg("why", run)
    assert said.code == 0 and "finding" not in said.out, said.out
    refused = prismdbg("capture", run, "--rank", 1, "--origin", "start", "-o", tmp_path / "capsule")
    assert refused.code == 2 and "Ray started the rank" in refused.err, refused.err


def test_what_the_function_of_a_worker_raises_is_the_incident(row: str, tmp_path: Path) -> None:
    run, code = record(tmp_path, raises=1)
    assert code == 1
    said = prismdbg("why", run)
    assert "rank 1 raised at 4.0: ValueError: bad batch" in said.out, said.out
    assert "its log has no end" not in said.out, said.out
