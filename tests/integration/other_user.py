"""A rank that a user who is not root runs in namespaces, and what it says."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from counting import SCRIPT, short_folder

from prismdbg.jobs.injection import cache_dir

ROOT = Path(__file__).resolve().parents[2]
PYTHON = Path("/usr/bin/python3")
NOBODY = 65534
PRIVATE = Path("/root")


def readable(keep: Path) -> str:
    """A shell command for a mount namespace: of root's home it shows the interpreter and this tree."""
    shown = sorted({Path(sys.base_prefix), Path(sys.prefix), ROOT})
    hidden = [path for path in shown if path.is_relative_to(PRIVATE)]
    lines = [f"mkdir {keep}", f"mount --rbind {PRIVATE} {keep}", f"mount -t tmpfs -o mode=755 none {PRIVATE}"]
    for path in hidden:
        lines.append(f"mkdir -p {path} && mount --rbind {keep}/{path.relative_to(PRIVATE)} {path}")
    return " && ".join(lines) if hidden else "true"


def as_nobody(home: Path, command: Sequence[object]) -> list[object]:
    """This prismdbg, as a user who may do nothing and has no CRIU."""
    become = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
    without = ["--bounding-set=-all", "--inh-caps=-all", "--no-new-privs"]
    paths = os.pathsep.join(map(str, (ROOT, ROOT / "tui", ROOT / "examples" / "vendored")))
    folders = {"HOME": home, "XDG_CACHE_HOME": home / "cache", "XDG_CONFIG_HOME": home / "config"}
    own = [f"{name}={folder}" for name, folder in folders.items()]
    places = [*own, "PRISMDBG_CRIU=/nowhere", f"PYTHONPATH={paths}"]
    return [*become, *without, "env", *places, *command]


def home_of_nobody(folder: Path) -> None:
    """With what `make setup` built in it."""
    shutil.copytree(cache_dir() / "native", folder / "cache" / "prismdbg" / "native", symlinks=True)
    subprocess.run(["chown", "-R", f"{NOBODY}:{NOBODY}", str(folder)], check=True)


def said_as_nobody(script: Path = SCRIPT) -> dict[str, Any]:
    """Its status, and its confinement where the program tells that; `unavailable`: why it could not be tried."""
    if not PYTHON.exists():
        return {"unavailable": f"{PYTHON} is missing: an interpreter that every user may read is needed"}
    with short_folder() as tree, short_folder() as home:
        tree.chmod(0o755)
        _copy_of_this_tree(tree)
        session = home / "session"
        session.mkdir()
        for path in (home, session):
            os.chown(path, NOBODY, NOBODY)
        return _run_as_nobody(tree, session, script)


def _copy_of_this_tree(target: Path) -> None:
    """Where everybody can read it: a checkout may lie in root's home."""
    unwanted = shutil.ignore_patterns("__pycache__", ".*")
    for name in ("prismdbg", "images"):
        shutil.copytree(ROOT / name, target / name, ignore=unwanted)
    shutil.copy(Path(__file__).parent / "programs" / "hostile_rank.py", target)
    for name in ("counting.py", "counting_rank.py", "waiting.py", "as_other_user.py"):
        shutil.copy(ROOT / "tests" / name, target)


def _run_as_nobody(tree: Path, session: Path, script: Path) -> dict[str, Any]:
    as_nobody = ["setpriv", "--reuid", str(NOBODY), "--regid", str(NOBODY), "--clear-groups"]
    ran = subprocess.run(
        [*as_nobody, str(PYTHON), "-B", str(tree / "as_other_user.py"), str(session), str(tree / script.name)],
        cwd=session,
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(tree), "HOME": str(session.parent)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert ran.returncode == 0, ran.stderr
    said: dict[str, Any] = json.loads(ran.stdout)
    return said
