"""Builds the library that stands in for NVIDIA's driver where a process is saved, and the names of its devices. See
`libcuda.c`. `make gpu` does the same with the real one."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests import c_library

SOURCE = Path(__file__).with_name("libcuda.c")
NAME = "libcuda.so.1"
DEVICES = (Path("/dev/nvidia0"), Path("/dev/nvidiactl"))
_NULL = os.makedev(1, 3)
# 10 MiB for every process, of which only those that use a GPU are looked for
_SMI = """#!/bin/sh
case $1 in
    --query-compute-apps=pid,used_memory) for at in /proc/[0-9]*; do echo "${at#/proc/}, 10"; done ;;
    *) exit 2 ;;
esac
"""


def build(folder: Path) -> Path:
    """The folder with the library, for LD_LIBRARY_PATH, and with an `nvidia-smi`, for PATH."""
    c_library.build(SOURCE, folder, NAME)
    (folder / "nvidia-smi").write_text(_SMI)
    (folder / "nvidia-smi").chmod(0o755)
    return folder


@contextmanager
def devices() -> Iterator[None]:
    """Device files with the names of a GPU's, which are those of /dev/null; those of a run that was killed will do.
    Where this machine has a GPU there are none to be made: ask `why_not`."""
    try:
        for path in DEVICES:
            if not path.exists():
                os.mknod(path, stat.S_IFCHR | 0o666, _NULL)
        yield
    finally:
        for path in DEVICES:
            path.unlink(missing_ok=True)


def why_not() -> str:
    """Why it cannot be used here; empty where it can."""
    if os.geteuid() != 0:
        return "only root can make device files"
    if any(path.exists() and path.stat().st_rdev != _NULL for path in DEVICES):
        return "this machine has a GPU, with which `make gpu` tests the same"
    return "" if c_library.compiler() else "no C compiler"
