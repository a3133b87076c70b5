"""What takes room on this machine and nobody needs: native builds that newer ones replaced, images of environments.

Only names it, with its size and how it goes; removes nothing and starts nothing.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

from prismdbg.errors import PrismError
from prismdbg.runtime.docker.daemon import Daemon
from prismdbg.runtime.docker.engine import connect
from prismdbg.runtime.docker.image import stored_environments

_SHOWN = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Leftover:
    name: str
    size_bytes: int


def superseded_builds(cache: Path) -> tuple[Leftover, ...]:
    """All but the newest of those for the same torch and Python; oldest first. Which sources a job records with is not
    known here: one that lacks its build makes it again in `prismdbg setup`."""
    builds: dict[str, list[Path]] = defaultdict(list)
    for library in (cache / "native").glob("*/*.so"):
        builds[library.parent.name.rpartition("-")[0]].append(library)
    old = [library for same in builds.values() for library in sorted(same, key=_made)[:-1]]
    return tuple(
        Leftover(name=str(library.parent), size_bytes=library.stat().st_size) for library in sorted(old, key=_made)
    )


def environment_images(cache: Path) -> tuple[Leftover, ...]:
    """Oldest first; none where no engine answers. Sizes count what two images share twice."""
    try:
        engine = connect(Daemon(cache), may_start=False)
    except PrismError:
        return ()
    try:
        return tuple(Leftover(name=image.tag, size_bytes=image.size_bytes) for image in stored_environments(engine))
    except PrismError:
        return ()
    finally:
        engine.close()


def describe(found: tuple[Leftover, ...], removal: str) -> str:
    """For `doctor`: how many, how large, the first names, and how they go."""
    if not found:
        return "none"
    size = sum(one.size_bytes for one in found)
    text = f"{size / 2**30:.1f} GiB" if size >= 1 << 30 else f"{size / 2**20:.1f} MiB"
    names = ", ".join(f"{one.name} ({one.size_bytes / 2**20:.0f} MiB)" for one in found[:_SHOWN])
    more = f" and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
    return f"{len(found)}, {text}: {names}{more}; {removal}"


def _made(library: Path) -> int:
    return library.stat().st_mtime_ns
