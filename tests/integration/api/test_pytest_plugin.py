"""A captured rank as a test of another project, run by pytest in a process of its own."""

from __future__ import annotations

import importlib.metadata
import subprocess
import sys
from pathlib import Path

import pytest
from chain import Taken, altered
from jobs import ROOT, plain_environment

from prismdbg.api import pytest_plugin
from prismdbg.capsule.capsule_dir import Capsule

pytestmark = [pytest.mark.job, pytest.mark.criu]

# The test that the plugin shows, of a capsule that is a folder, before its loss is NaN.
SHOWN = (pytest_plugin.__doc__ or "").partition("\n\n")[2].replace('"11.1"', '"10.1"')
SHOWN = SHOWN.replace('"incident.tar.zst"', '"capsule", runtime="local"')
TESTS = """
import pytest

@pytest.mark.capsule("other", runtime="local")
def test_it_is_not_what_was_recorded(capsule):
    capsule.assert_identical()

@pytest.mark.capsule("capsule", runtime="local")
def test_a_part_is_compared(capsule):
    verdict = capsule.compare(until="2.1")
    assert verdict.moment == "2.1" and verdict.strength.collectives > 4

def test_without_a_mark(capsule):
    pass

@pytest.mark.capsule("capsule", runtim="local")
def test_a_misspelled_option(capsule):
    pass

@pytest.mark.capsule("nowhere")
def test_of_nothing(capsule):
    capsule.assert_identical()
"""


def test_a_capsule_is_a_test(nan_early: Taken, tmp_path: Path) -> None:
    (tmp_path / "test_incident.py").write_text(TESTS + SHOWN)
    (tmp_path / "capsule").symlink_to(nan_early.capsule)
    argv = [*Capsule.open(nan_early.capsule).rank()["orig_argv"], "--lr", "2.1e-3"]
    altered(nan_early.capsule, tmp_path / "other", orig_argv=argv)
    installed = [entry.value for entry in importlib.metadata.entry_points(group="pytest11")]
    loaded = [] if "prismdbg.api.pytest_plugin" in installed else ["-p", "prismdbg.api.pytest_plugin"]
    options = ["-rA", "--strict-markers", "-p", "no:cacheprovider", "--rootdir", str(tmp_path), *loaded]
    ended = subprocess.run(
        [sys.executable, "-m", "pytest", *options, str(tmp_path)],
        cwd=tmp_path,
        env=plain_environment(PYTHONPATH=f"{ROOT}:{ROOT / 'tui'}"),
        capture_output=True,
        text=True,
        timeout=400,
    )
    said = ended.stdout
    assert ended.returncode == 1, said + ended.stderr
    assert "PASSED test_incident.py::test_the_loss_stays_finite" in said, said
    assert "2 passed" in said and "2 failed" in said and "2 errors" in said, said
    assert (
        "AssertionError" in said
        and "diverged at " in said
        and "all_reduce sends different values from the recorded ones" in said
    )
    assert "the fixture `capsule` needs a mark" in said and "unexpected keyword argument 'runtim'" in said
    assert "nowhere" in said
