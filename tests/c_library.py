"""Compiles one C file into a library that stands in for one of NVIDIA's, or in front of the C library."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path


def compiler() -> str | None:
    return shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")


def build(source: Path, folder: Path, name: str) -> Path:
    """The folder with the library, for LD_LIBRARY_PATH."""
    program = compiler()
    assert program is not None
    folder.mkdir(parents=True, exist_ok=True)
    flags = ["-std=c11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror", "-O1", "-shared", "-fPIC"]
    subprocess.run([program, *flags, "-o", str(folder / name), str(source)], check=True)
    return folder
