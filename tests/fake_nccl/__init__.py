"""Builds a backend that answers as NCCL does, without a GPU: see `backend.cpp`."""

from __future__ import annotations

import hashlib
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

import torch

MODULE = "fake_nccl.so"
SOURCE = Path(__file__).parent / "backend.cpp"


def built(compiler: str, cache: Path) -> Path:
    """The folder below `cache` from where Python imports it after torch. It is compiled once: the folder is named after
    all that it is made of."""
    command = _command(compiler)
    version = subprocess.run([compiler, "--version"], check=True, capture_output=True, text=True).stdout
    made_of = "\0".join([SOURCE.read_text(), *command, version, torch.__version__, sys.version])
    folder = cache / "fake-nccl" / hashlib.sha256(made_of.encode()).hexdigest()[:16]
    if not (folder / MODULE).exists():
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder) as name:
            subprocess.run([*command, "-o", str(Path(name) / MODULE)], check=True, timeout=600)
            (Path(name) / MODULE).replace(folder / MODULE)
    return folder


def _command(compiler: str) -> list[str]:
    """Without its output."""
    root = Path(torch.__file__).parent
    include = root / "include"
    folders = (include, include / "torch" / "csrc" / "api" / "include", Path(sysconfig.get_paths()["include"]))
    command = [compiler, "-std=c++20", "-O0", "-fPIC", "-shared", *(f"-isystem{path}" for path in folders)]
    command += [f"-D_GLIBCXX_USE_CXX11_ABI={int(torch._C._GLIBCXX_USE_CXX11_ABI)}"]
    libraries = [f"-L{root / 'lib'}", "-ltorch_python", "-ltorch_cpu", "-lc10"]
    return [*command, str(SOURCE), *libraries]
