"""What keeps a run of tests from filling its disk: hundreds of tests would fail, and none of them would say why."""

from __future__ import annotations

import os
import resource
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

LEAST_BYTES = 2 << 30  # a whole run, with a container engine and a cache for each worker, takes about 20 GB
MAX_FILE_BYTES = 16 << 30  # for whatever the tests start, so that one runaway does not take the whole disk
NAMED = 12


def limit_files() -> None:
    """The soft limit only: what a test or prismdbg sets itself counts."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    if soft == resource.RLIM_INFINITY or soft > MAX_FILE_BYTES:
        resource.setrlimit(resource.RLIMIT_FSIZE, (MAX_FILE_BYTES, hard))


@contextmanager
def files_of_any_size() -> Iterator[None]:
    """For files that are nearly all hole."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limits[1], limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


class DiskSpace:
    """Ends the run before the disk is full, and names what fills it. Looks after each test, in each worker."""

    def __init__(self, least_bytes: int = LEAST_BYTES, roots: tuple[Path, ...] = ()) -> None:
        self._least_bytes = least_bytes
        self._roots = roots or (Path(tempfile.gettempdir()), Path.home(), Path("/var"))

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_teardown(self, item: pytest.Item) -> None:
        folder = self._roots[0]
        free = shutil.disk_usage(folder).free
        if free < self._least_bytes and not item.session.shouldstop:
            item.session.shouldstop = (
                f"{folder} has {free >> 20} MiB left after {item.nodeid}; the largest folders: "
                + ", ".join(f"{size >> 20} MiB {path}" for size, path in largest(self._roots))
            )


def largest(roots: Iterable[Path]) -> list[tuple[int, Path]]:
    """The folders below whose own files take most, in bytes; of the roots' own file systems. A tree that changes
    meanwhile is no error."""
    found: dict[Path, int] = {}
    for root in roots:
        device = root.stat().st_dev
        for parent, inner, files in os.walk(root):
            inner[:] = [name for name in inner if _device(Path(parent, name)) == device]
            found[Path(parent)] = sum(_taken(Path(parent, name)) for name in files)
    return sorted(((size, path) for path, size in found.items()), reverse=True)[:NAMED]


def _device(path: Path) -> int | None:
    try:
        return path.lstat().st_dev
    except OSError:
        return None


def _taken(path: Path) -> int:
    try:
        return path.lstat().st_blocks * 512
    except OSError:
        return 0
