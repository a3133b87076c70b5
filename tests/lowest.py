"""`make lowest`: the unit tests with the lowest versions that pyproject.toml allows of the packages every user gets.

An environment that has torch often has a numpy, a click or a psutil of years ago, and pip leaves them as they are.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[1]
# Generated code of packages that only tests and extras use is newer than the lowest one.
LEFT_OUT = ("protobuf",)
TESTS = ROOT / "tests" / "unit"
SCIPYS_OWN = "ignore:A NumPy version:UserWarning"  # its lowest is newer; only predictions use it


def main(arguments: list[str]) -> int:
    """Exit code of pytest. `arguments`: for it; without any, all unit tests."""
    folder = ROOT / ".compat" / "lowest"
    wanted = lowest((ROOT / "pyproject.toml").read_text())
    pip = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--upgrade", "--target", str(folder)]
    subprocess.run([*pip, *wanted], check=True)
    print("with", *wanted, flush=True)
    path = os.pathsep.join(map(str, (folder, ROOT, ROOT / "tui")))
    environment = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
    tests = arguments or ["-n", str(os.cpu_count() or 1), "--dist", "loadfile", str(TESTS)]
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-W", SCIPYS_OWN, *tests], cwd=ROOT, env=environment
    ).returncode


def lowest(project: str) -> list[str]:
    """`name==version` of each requirement in the text of a pyproject.toml that has a lower bound."""
    found = []
    for requirement in map(Requirement, tomllib.loads(project)["project"]["dependencies"]):
        bounds = [one.version for one in requirement.specifier if one.operator == ">="]
        if bounds and requirement.name not in LEFT_OUT:
            found.append(f"{requirement.name}=={bounds[0]}")
    return found


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
