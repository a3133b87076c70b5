"""What is built once per machine: the native recorder, for the job's Python and torch, and the checkpoint engine."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from prismdbg.checkpoint import choice
from prismdbg.checkpoint.cache import made_cache_folder, written_by_owner_alone
from prismdbg.checkpoint.engine import Use
from prismdbg.errors import PrismError
from prismdbg.jobs.injection import PACKAGE, cache_dir

BUILD_BOUND_S = 900
_BUILD_NATIVE = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from prismdbg.errors import PrismError
from prismdbg.rank.native import build as native_build
try:
    print(native_build.build(Path(sys.argv[2])))
except PrismError as error:
    sys.exit(f"{error} ({error.hint})")
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One thing that was asked for. `lacking` says why it is not there, empty where it is; `instead` what then."""

    name: str
    place: str = ""
    lacking: str = ""
    instead: str = ""


def set_up(python: str, say: Callable[[str], None]) -> list[Part]:
    """Builds what is missing; quick where nothing is. A part that cannot be built is said, not raised."""
    made_cache_folder()
    with written_by_owner_alone():
        return [_native(python, say), _engine(say)]


def _native(python: str, say: Callable[[str], None]) -> Part:
    """In another process: this side never imports torch, and the job's Python may be another one."""
    say("building the native recorder for the torch of " + (python if python != sys.executable else "this Python"))
    instead = "ranks are recorded by the slower Python kernels"
    with tempfile.TemporaryDirectory(prefix="prismdbg-setup-") as folder:
        (Path(folder) / "prismdbg").symlink_to(PACKAGE)
        command = [python, "-c", _BUILD_NATIVE, folder, str(cache_dir())]
        try:
            ran = subprocess.run(command, capture_output=True, text=True, timeout=BUILD_BOUND_S, check=False)
        except (OSError, subprocess.TimeoutExpired) as error:
            why = error.strerror if isinstance(error, OSError) and error.strerror else error
            return Part(name="native recorder", lacking=f"{python}: {why}", instead=instead)
    last = (ran.stdout if ran.returncode == 0 else ran.stderr).strip().splitlines()[-1:] or ["it printed nothing"]
    if ran.returncode != 0:
        return Part(name="native recorder", lacking=last[0], instead=instead)
    return Part(name="native recorder", place=last[0])


def _engine(say: Callable[[str], None]) -> Part:
    say("searching for CRIU or building it from Debian packages, and testing it with a dump and a restore")
    try:
        program = choice.find(Use.BUILD).program
    except PrismError as error:
        lacking = f"{error} ({error.hint})" if error.hint else str(error)
        return Part(
            name=choice.NAME, lacking=lacking, instead="capsules can start only at the program's start (--origin start)"
        )
    return Part(name=f"{program.name} {program.version}", place=str(program.folder))
