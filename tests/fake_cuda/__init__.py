"""Builds the library that stands in for NVIDIA's driver, and the scenarios that run on it. See `libcuda.cpp`."""

from __future__ import annotations

import subprocess
import sysconfig
from pathlib import Path

from prismdbg.rank import native

HERE = Path(__file__).parent
NATIVE = Path(native.__file__).parent
LIBRARY, MODULE = "libcuda.so.1", "device_scenarios.so"
# what looks at devices, and what of the recorder it uses: none of it knows torch
SOURCES = (*sorted((NATIVE / "device").glob("*.cpp")), *(NATIVE / name for name in ("recorder/fingerprint.cpp",
           "process/background_thread.cpp")))  # fmt: skip
_FLAGS = ("-std=c++20", "-O1", "-g", "-fPIC", "-shared", "-Wall", "-Wextra", "-Werror")


def build(compiler: str, folder: Path) -> None:
    """Both, into `folder`."""
    library = [compiler, *_FLAGS, f"-Wl,-soname,{LIBRARY}", str(HERE / "libcuda.cpp"), "-o", str(folder / LIBRARY)]
    subprocess.run(library, check=True, timeout=120)
    includes = (f"-I{NATIVE}", f"-isystem{sysconfig.get_paths()['include']}")
    sources = [str(path) for path in (HERE / "scenarios.cpp", *SOURCES)]
    linked = [f"-Wl,-rpath,{folder}", str(folder / LIBRARY), "-o", str(folder / MODULE)]
    subprocess.run([compiler, *_FLAGS, *includes, *sources, *linked], check=True, timeout=300)
