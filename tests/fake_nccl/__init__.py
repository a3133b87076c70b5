"""Builds a backend that answers as NCCL does, without a GPU: see `backend.cpp`."""

from __future__ import annotations

import subprocess
import sysconfig
from pathlib import Path

import torch

MODULE = "fake_nccl.so"


def build(compiler: str, folder: Path) -> None:
    """Into `folder`, from where Python imports it after torch."""
    root = Path(torch.__file__).parent
    include = root / "include"
    folders = (include, include / "torch" / "csrc" / "api" / "include", Path(sysconfig.get_paths()["include"]))
    command = [compiler, "-std=c++20", "-O0", "-fPIC", "-shared", *(f"-isystem{path}" for path in folders)]
    command += [f"-D_GLIBCXX_USE_CXX11_ABI={int(torch._C._GLIBCXX_USE_CXX11_ABI)}"]
    libraries = [f"-L{root / 'lib'}", "-ltorch_python", "-ltorch_cpu", "-lc10"]
    source = Path(__file__).parent / "backend.cpp"
    subprocess.run([*command, str(source), *libraries, "-o", str(folder / MODULE)], check=True, timeout=600)
