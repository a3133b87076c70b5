"""What a job gets from us: one folder in front of PYTHONPATH with `sitecustomize.py` and a copy of the half of this
package that runs in a rank.

A copy, for the job may run for weeks: another version installed meanwhile must not reach into it. Not the whole: a
program seldom asks for the other half, which is two thirds of the files, and then gets the installed one.
"""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Mapping
from pathlib import Path

from prismdbg.checkpoint.cache import cache_folder

PACKAGE = Path(__file__).resolve().parents[1]
RANK_HALF = ("__init__.py", "errors.py", "model", "capsule", "protocol", "expr", "settings", "rank")
CONFIG_VARIABLE = "PRISMDBG_CONFIG"


def make_inject_folder(folder: Path) -> None:
    """Nothing else of our environment becomes importable in the job."""
    folder.mkdir(mode=0o755, exist_ok=True)
    shutil.copyfile(PACKAGE / "rank" / "inject" / "sitecustomize.py", folder / "sitecustomize.py")
    package, coming = folder / "prismdbg", folder / ".coming"
    if not package.exists():
        shutil.rmtree(coming, ignore_errors=True)  # of a start that was killed
        try:
            _copy_rank_half(coming)
            coming.rename(package)
        except OSError:  # no room: the job runs all the same
            shutil.rmtree(coming, ignore_errors=True)
            package.symlink_to(PACKAGE)


def _copy_rank_half(target: Path) -> None:
    target.mkdir(mode=0o755)
    for part in RANK_HALF:
        source = PACKAGE / part
        shutil.copytree(source, target / part) if source.is_dir() else shutil.copy2(source, target)


def job_environment(
    inject: Path, config: Path, base: Mapping[str, str], *, is_replayed_from_start: bool = True
) -> dict[str, str]:
    """The job's environment with ours in front. Where its ranks may be replayed from their start, one hash seed is
    fixed if the job has none (`random` is one): it cannot be read back from a process. Else every process has its own,
    as without prismdbg: ranks that go through a set in different orders go on to do so."""
    environment = dict(base)
    path = environment.get("PYTHONPATH")
    environment["PYTHONPATH"] = f"{inject}{os.pathsep}{path}" if path else str(inject)
    environment[CONFIG_VARIABLE] = str(config)
    if is_replayed_from_start:
        environment.setdefault("PYTHONHASHSEED", str(secrets.randbelow(1 << 32)))
    return environment


def cache_dir() -> Path:
    """Where the native recorder, the checkpoint engine and Docker's images are kept."""
    return cache_folder()
