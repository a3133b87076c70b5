"""What a Python process of a recorded job begins with, whichever Python it is."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[3] / "prismdbg"
OTHERS = sorted(
    path for path in Path(sys.base_prefix).parent.glob("*/bin/python") if path.is_file()
)  # as pyenv has them
OWN = "import sys\nsys.stdout.write('own ')\nsys.own = True\n"
SAYS = "import sys; sys.stdout.write('began %s' % getattr(sys, 'own', False))"


def inject(folder: Path, package: Path = PACKAGE) -> Path:
    folder.mkdir()
    (folder / "sitecustomize.py").write_bytes((PACKAGE / "rank" / "inject" / "sitecustomize.py").read_bytes())
    (folder / "prismdbg").symlink_to(package)
    return folder


def run(folder: Path, *path: Path, python: str | Path = sys.executable) -> tuple[int, str, str]:
    (folder / "config.json").write_text("{}")
    environment = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": os.pathsep.join(map(str, path)),
        "PRISMDBG_CONFIG": str(folder / "config.json"),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    command = [str(python), "-c", SAYS]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    return done.returncode, done.stdout, done.stderr


@pytest.fixture(params=["folder", "zip", "none"])
def own(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[list[Path], str]:
    """Entries of the program's own path, and what it then says."""
    if request.param == "none":
        return [], "began False"
    if request.param == "zip":
        with zipfile.ZipFile(tmp_path / "s.zip", "w") as archive:
            archive.writestr("sitecustomize.py", OWN)
        return [tmp_path / "s.zip"], "own began True"
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "sitecustomize.py").write_text(OWN)
    return [tmp_path / "own"], "own began True"


def empty(folder: Path) -> Path:
    """A package of which the rest is gone."""
    (folder / "empty").mkdir()
    (folder / "empty" / "__init__.py").touch()
    return folder / "empty"


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("python", [Path(sys.executable), *OTHERS], ids=lambda python: python.parts[-3])
def test_the_sitecustomize_of_the_program_is_run_by_each_python(
    tmp_path: Path, own: tuple[list[Path], str], python: Path, count: int
) -> None:
    """count: a job that is recorded inside a recorded one has ours twice."""
    path, said = own
    ours = [inject(tmp_path / f"inject{number}") for number in range(count)]
    assert run(tmp_path, *ours, *path, python=python) == (0, said, "")


def test_without_the_run_it_is_said_and_the_program_s_own_runs(tmp_path: Path, own: tuple[list[Path], str]) -> None:
    path, said = own
    code, printed, errors = run(tmp_path, inject(tmp_path / "inject", empty(tmp_path)), *path)
    assert (code, printed) == (0, said)
    assert errors.startswith("prismdbg: not active: ModuleNotFoundError") and errors.count("\n") == 1


def test_an_error_in_the_program_s_own_is_said_as_by_python(tmp_path: Path) -> None:
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "sitecustomize.py").write_text("import nothing_such")
    code, printed, errors = run(tmp_path, inject(tmp_path / "inject", empty(tmp_path)), tmp_path / "own")
    assert (code, printed) == (0, "began False") and "nothing_such" in errors


REMOVED = """
import os, sys
from pathlib import Path
os.chdir(sys.argv[1])
os.rmdir(sys.argv[1])
os.readlink = lambda path: os.stat("/missing")
from prismdbg.rank.recording.inputs import started_in
print(started_in.folder)
"""


def test_it_begins_where_there_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "here").mkdir()
    done = subprocess.run(
        [sys.executable, "-c", REMOVED, str(tmp_path / "here")],
        env={**os.environ, "PYTHONPATH": str(PACKAGE.parent)}, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert (done.stdout, done.stderr) == ("/\n", "")
