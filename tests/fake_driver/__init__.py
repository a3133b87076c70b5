"""Builds the library that stands in for NVIDIA's driver where a process is saved, and the names of its devices. See
`libcuda.c`. `make gpu` does the same with the real one."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

SOURCE = Path(__file__).with_name("libcuda.c")
NAME = "libcuda.so.1"
DEVICES = (Path("/dev/nvidia0"), Path("/dev/nvidiactl"))
_NULL = os.makedev(1, 3)


def compiler() -> str | None:
    return shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")


# 10 MiB for every process, of which only those that use a GPU are looked for
_SMI = """#!/bin/sh
case $1 in
    --query-compute-apps=pid,used_memory) for at in /proc/[0-9]*; do echo "${at#/proc/}, 10"; done ;;
    *) exit 2 ;;
esac
"""


def build(folder: Path) -> Path:
    """The folder with the library, for LD_LIBRARY_PATH, and with an `nvidia-smi`, for PATH."""
    program = compiler()
    assert program is not None
    folder.mkdir(parents=True, exist_ok=True)
    flags = ["-std=c11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror", "-O1", "-shared", "-fPIC"]
    subprocess.run([program, *flags, "-o", str(folder / NAME), str(SOURCE)], check=True)
    (folder / "nvidia-smi").write_text(_SMI)
    (folder / "nvidia-smi").chmod(0o755)
    return folder


@contextmanager
def devices() -> Iterator[None]:
    """Device files with the names of a GPU's, which are those of /dev/null. Where this machine has a GPU there are none
    to be made; ask `is_free`."""
    made = []
    try:
        for path in DEVICES:
            os.mknod(path, stat.S_IFCHR | 0o666, _NULL)
            made.append(path)
        yield
    finally:
        for path in made:
            path.unlink()


def why_not() -> str:
    """Why it cannot be used here; empty where it can."""
    if os.geteuid() != 0:
        return "only root can make device files"
    for path in DEVICES:  # those of a run that was killed
        if path.exists() and path.stat().st_rdev == _NULL:
            path.unlink()
    if any(path.exists() for path in DEVICES):
        return "this machine has a GPU, with which `make gpu` tests the same"
    return "" if compiler() else "no C compiler"
