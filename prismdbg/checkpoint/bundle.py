"""Finding CRIU, or making it: a relocatable bundle in the cache that has passed a dump and a restore here."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from prismdbg.capsule.partial import partial_folder, publish
from prismdbg.checkpoint import selftest
from prismdbg.checkpoint.bounded import run_bounded
from prismdbg.checkpoint.cache import cache_folder, made_cache_folder
from prismdbg.errors import FacilityError
from prismdbg.model.shipped import shipped

OLDEST = (4, 2)
BUILD_BOUND_S = 600.0
_HINT = "run images/criu/build (as root, needs mmdebstrap), or set PRISMDBG_CRIU to a bundle built elsewhere"


@dataclass(frozen=True, slots=True, kw_only=True)
class Criu:
    """A bundle made by `images/criu`: starts on any Linux of this architecture, also inside a container."""

    folder: Path
    version: str
    loader: str
    program: str
    libraries: str
    bindings: str

    def command(self, folder: Path | None = None) -> tuple[str, ...]:
        """How to start it where the bundle lies at `folder` (a container binds it elsewhere)."""
        at = folder or self.folder
        return (
            str(at / self.loader),
            "--inhibit-cache",
            "--library-path",
            str(at / self.libraries),
            str(at / self.program),
        )

    @property
    def python_path(self) -> Path:
        """The folder that holds `pycriu`."""
        return self.folder / self.bindings


def find() -> Criu:
    """A CRIU that works here: PRISMDBG_CRIU, the cache, or one on PATH. `FacilityError` says why none was."""
    refused: list[str] = []
    for folder in _candidates():
        criu = _read(folder)
        if criu is None:
            refused.append(f"{folder}: not a bundle")
        elif _numbers(criu.version) < OLDEST:
            refused.append(f"CRIU {criu.version} is older than {OLDEST[0]}.{OLDEST[1]}")
        elif reason := selftest.failure(criu.command(), made_cache_folder() / "criu" / "selftest.json"):
            refused.append(f"CRIU {criu.version}: {reason}")
        else:
            return criu
    raise FacilityError("no usable CRIU: " + ("; ".join(refused) or "none is installed"), hint=_HINT)


def reader() -> Criu | None:
    """One whose bindings read images; none is run, and none need work here. None where there is none."""
    found = (_read(folder) for folder in _candidates())
    return next((criu for criu in found if criu is not None and criu.python_path.is_dir()), None)


def build() -> Criu:
    """`find`, and where that finds none a bundle from Debian's packages (about 15 s, needs a mirror)."""
    try:
        return find()
    except FacilityError:
        fresh = _build_in_cache()
    if reason := selftest.failure(fresh.command(), made_cache_folder() / "criu" / "selftest.json"):
        raise FacilityError(
            f"CRIU {fresh.version} was built, but does not work here: {reason}", hint="capture with --origin start"
        )
    return fresh


def _candidates() -> list[Path]:
    if named := os.environ.get("PRISMDBG_CRIU"):
        return [Path(named)]
    bundles = [path.parent for path in (cache_folder() / "criu").glob("*/bundle.json")]
    bundles.sort(key=lambda path: _numbers(path.name), reverse=True)
    if (system := _from_path()) is not None and system not in bundles:
        bundles.append(system)
    return bundles


def _from_path() -> Path | None:
    """An installed CRIU made relocatable, so that a container can use it too."""
    program = shutil.which("criu")
    if program is None:
        return None
    said = run_bounded([program, "--version"], timeout_s=10, what="criu --version").output
    version = said.partition("Version: ")[2].split("\n")[0].strip()
    if _numbers(version) < OLDEST:
        return None
    folder = cache_folder() / "criu" / f"{version}.installed"
    if not (folder / "bundle.json").exists():
        ran = run_bounded(
            ["sh", str(shipped("criu") / "collect"), str(folder)], timeout_s=60, what="copying the installed CRIU"
        )
        if ran.returncode != 0:
            shutil.rmtree(folder, ignore_errors=True)
            return None
    return folder


def _build_in_cache() -> Criu:
    home = cache_folder() / "criu"
    with partial_folder(home / "building") as folder:  # what a build that was killed has left there goes, too
        made = folder / "made"
        ran = run_bounded(
            [str(shipped("criu") / "build"), str(made)], timeout_s=BUILD_BOUND_S, what="images/criu/build"
        )
        criu = _read(made)
        if ran.returncode != 0 or criu is None:
            last = ran.output.strip().splitlines()[-1:] or ["it printed nothing"]
            raise FacilityError(f"CRIU could not be built: {last[0]}", hint=_HINT)
        final = home / criu.version
        publish(made, final)
    found = _read(final)
    if found is None:
        raise FacilityError(f"the CRIU bundle at {final} is damaged", hint=f"remove {final} and try again")
    return found


def _read(folder: Path) -> Criu | None:
    try:
        facts = json.loads((folder / "bundle.json").read_text())
        criu = Criu(folder=folder.resolve(), **{key: str(value) for key, value in facts.items()})
    except (OSError, ValueError, TypeError):
        return None
    return criu if (criu.folder / criu.program).is_file() else None


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".") if part.isdigit())
