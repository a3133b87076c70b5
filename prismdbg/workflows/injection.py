"""What a job gets from us: one folder in front of PYTHONPATH with `sitecustomize.py` and a copy of this package.

A copy, for the job may run for weeks: another version installed meanwhile must not reach into it.
"""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Mapping
from pathlib import Path

import prismdbg
from prismdbg.checkpoint.bundle import cache_folder

PACKAGE = Path(prismdbg.__file__).resolve().parent
CONFIG_VARIABLE = "PRISMDBG_CONFIG"


def make_inject_folder(folder: Path) -> None:
    """Nothing else of our environment becomes importable in the job."""
    folder.mkdir(mode=0o755, exist_ok=True)
    shutil.copyfile(PACKAGE / "rank" / "inject" / "sitecustomize.py", folder / "sitecustomize.py")
    package = folder / "prismdbg"
    if not package.exists():
        try:
            shutil.copytree(PACKAGE, package)
        except OSError:  # no room: the job runs all the same
            shutil.rmtree(package, ignore_errors=True)
            package.symlink_to(PACKAGE)


def job_environment(inject: Path, config: Path, base: Mapping[str, str]) -> dict[str, str]:
    """The job's environment with ours in front. A hash seed is fixed, for it cannot be read back from a process."""
    environment = dict(base)
    path = environment.get("PYTHONPATH")
    environment["PYTHONPATH"] = f"{inject}{os.pathsep}{path}" if path else str(inject)
    environment[CONFIG_VARIABLE] = str(config)
    if environment.get("PYTHONHASHSEED", "random") == "random":
        environment["PYTHONHASHSEED"] = str(secrets.randbelow(1 << 32))
    return environment


def cache_dir() -> Path:
    """Where the native recorder, the CRIU bundle and Docker's images are kept."""
    return cache_folder()
