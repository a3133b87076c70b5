"""Tests that pass only when they are run again are named."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
CONFTEST = """
from unstable import Unstable

def pytest_configure(config):
    config.pluginmanager.register(Unstable())
"""
TESTS = """
from pathlib import Path

def test_unstable():
    flag = Path(__file__).with_name("flag")
    was_there = flag.exists()
    flag.touch()
    assert was_there

def test_wrong():
    assert False

def test_right():
    pass
"""


def last_lines(folder: Path, *options: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", *options, str(folder)],
        env={"PYTHONPATH": str(ROOT / "tests"), "PATH": "/usr/bin:/bin"},
        cwd=folder, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 1, done.stdout + done.stderr  # one test is wrong both times
    return done.stdout.splitlines()


def test_what_failed_and_passes_again_is_named_at_the_end(tmp_path: Path) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    (tmp_path / "test_some.py").write_text(TESTS)
    assert not any("UNSTABLE" in line for line in last_lines(tmp_path))
    (tmp_path / "conftest.py").write_text(CONFTEST)
    title, name = last_lines(tmp_path, "--last-failed")[-2:]
    assert title == "=== UNSTABLE (1): failed, and passed when run again; mend these ==="
    assert name == "UNSTABLE test_some.py::test_unstable"
    assert last_lines(tmp_path, "--last-failed")[-1].startswith("=== no unstable test")
