"""The package tells its types: a right program of a user passes mypy --strict where prismdbg is installed."""

from __future__ import annotations

import re
import subprocess
import sys
import textwrap
import venv
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[3]
PACKAGES = (ROOT / "prismdbg", ROOT / "tui" / "prismdbg_tui")
WRONG = """
import prismdbg

number: int = prismdbg.open("RUN")[0].at("0.1").name
"""


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of an environment in which the packages lie as an installation lays them, and numpy as it is here."""
    home = tmp_path_factory.mktemp("typed") / "venv"
    venv.create(home, system_site_packages=False, with_pip=False, symlinks=True)
    (site,) = (home / "lib").glob("python*/site-packages")
    for package in (*PACKAGES, Path(np.__file__).parent):
        (site / package.name).symlink_to(package)
    return home / "bin" / "python"


def checked(program: str, python: Path, folder: Path) -> tuple[int, str]:
    (folder / "program.py").write_text(program)
    options = ["--strict", "--python-executable", str(python), "--cache-dir", str(python.parents[2] / "mypy")]
    ran = subprocess.run(
        [sys.executable, "-m", "mypy", *options, "program.py"],
        cwd=folder, env={"PATH": "/usr/bin:/bin"}, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    return ran.returncode, ran.stdout + ran.stderr


def test_a_typed_program_passes(python: Path, tmp_path: Path) -> None:
    code, said = checked((ROOT / "tests" / "typed_program.py").read_text(), python, tmp_path)
    assert code == 0, said


def test_the_programs_of_the_documentation_pass(python: Path, tmp_path: Path) -> None:
    blocks = re.findall(r"(?m)(?:^(?:    .*)?\n)+", (ROOT / "docs" / "python.md").read_text())
    programs = [textwrap.dedent(block) for block in blocks if "with prismdbg." in block]
    assert len(programs) == 2
    for program in programs:
        code, said = checked(f"import prismdbg\n{program}", python, tmp_path)
        assert code == 0, f"{program}\n{said}"


def test_a_wrong_type_is_found(python: Path, tmp_path: Path) -> None:
    code, said = checked(WRONG, python, tmp_path)
    assert code == 1 and '"str", variable has type "int"' in said, said


def test_both_packages_say_that_they_are_typed() -> None:
    assert [package.name for package in PACKAGES if not (package / "py.typed").is_file()] == []
