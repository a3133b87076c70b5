"""What a job is given of prismdbg: the rank's half, from which the other half of an installed one can still be used."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from prismdbg.jobs.injection import PACKAGE, RANK_HALF, job_environment, make_inject_folder

USES_THE_HOST_SIDE = (
    "import prismdbg.cli.main, prismdbg.model.moment as half; print(prismdbg.cli.__file__, half.__file__)"
)


def run(program: str, tmp_path: Path, *path: Path) -> subprocess.CompletedProcess[str]:
    """As a job runs it, in an environment whose own PYTHONPATH is `path`."""
    inject = tmp_path / "inject"
    make_inject_folder(inject)
    (tmp_path / "config.json").write_text("{}")
    own = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, path))}
    environment = job_environment(inject, tmp_path / "config.json", own)
    # -S: whether prismdbg is installed here is not what is tested
    command = [sys.executable, "-S", "-c", f"import sitecustomize; {program}"]
    return subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60)


def test_it_holds_the_half_that_runs_in_a_rank(tmp_path: Path) -> None:
    done = run("import prismdbg.model.moment as half; print(half.__file__)", tmp_path)
    assert (done.stdout.strip(), done.stderr) == (str(tmp_path / "inject/prismdbg/model/moment.py"), "")
    assert {path.name for path in (tmp_path / "inject" / "prismdbg").iterdir()} == set(RANK_HALF)


def test_the_other_half_is_that_of_an_installed_one(tmp_path: Path) -> None:
    """A job may run the command line. What runs in a rank remains the copy."""
    click = Path(str(__import__("click").__file__)).parents[1]
    done = run(USES_THE_HOST_SIDE, tmp_path, PACKAGE.parent, click)
    assert done.stdout.split() == [
        str(PACKAGE / "cli/__init__.py"),
        str(tmp_path / "inject/prismdbg/model/moment.py"),
    ], done.stderr


def test_without_an_installed_one_there_is_no_other_half(tmp_path: Path) -> None:
    done = run(USES_THE_HOST_SIDE, tmp_path)
    assert done.returncode == 1
    assert "No module named 'prismdbg.cli'" in done.stderr
