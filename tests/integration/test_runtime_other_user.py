"""Namespaces for a user who is not root: the program's start, alone, its writes thrown away."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from counting import short_folder

ROOT = Path(__file__).resolve().parents[2]
PYTHON = Path("/usr/bin/python3")
NOBODY = 65534


def test_a_user_who_is_not_root_runs_a_rank_in_namespaces() -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can become another user; as one, the conformance tests show the same")
    if not PYTHON.exists():
        pytest.skip(f"{PYTHON} is missing: an interpreter that every user may read is needed")
    with short_folder() as tree, short_folder() as home:
        tree.chmod(0o755)
        _copy_of_this_tree(tree)
        session = home / "session"
        session.mkdir()
        for path in (home, session):
            os.chown(path, NOBODY, NOBODY)
        said = _run_as_nobody(tree, session)
    if reason := said.get("unavailable"):
        pytest.skip(str(reason))
    assert said["caller"] == NOBODY and said["uid"] == NOBODY
    assert said["cap_eff"] == 0 and said["no_new_privs"] == "1"
    assert said["interfaces"] == ["lo"]
    assert "error" not in said and not said["is_written"]


def _copy_of_this_tree(target: Path) -> None:
    """Where everybody can read it: a checkout may lie in root's home."""
    unwanted = shutil.ignore_patterns("__pycache__", ".*")
    for name in ("prismdbg", "images"):
        shutil.copytree(ROOT / name, target / name, ignore=unwanted)
    for name in ("counting.py", "counting_rank.py", "waiting.py", "as_other_user.py"):
        shutil.copy(ROOT / "tests" / name, target)


def _run_as_nobody(tree: Path, session: Path) -> dict[str, object]:
    as_nobody = ["setpriv", "--reuid", str(NOBODY), "--regid", str(NOBODY), "--clear-groups"]
    ran = subprocess.run(
        [*as_nobody, str(PYTHON), "-B", str(tree / "as_other_user.py"), str(session)],
        cwd=session,
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(tree), "HOME": str(session.parent)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert ran.returncode == 0, ran.stderr
    said: dict[str, object] = json.loads(ran.stdout)
    return said
