"""Builds the C++ recording kernels ahead of time, and loads them. Loading never compiles.

The result is keyed by everything its binary interface depends on: torch, Python, ABI, machine, sources and flags.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import os
import platform
import shutil
import subprocess
import sysconfig
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType

import torch

from prismdbg.capsule.partial import partial_folder
from prismdbg.errors import FacilityError
from prismdbg.rank.native import cuda_headers

MODULE = "prismdbg_native"
SOURCES = Path(__file__).parent
COMPILE_TIMEOUT_S = 600
_BYTES_PER_COMPILER = 2 << 30
# Sources that are compiled as one: reading torch's headers is most of the work.
_TOGETHER = (
    ("c10d/kernel", "c10d/call", "c10d/pending_collective", "c10d/recording_work", "c10d/tensors"),
    ("module", "c10d/coalescing", "c10d/hooks", "tracer/trace_module"),
    ("tracer/allocator_shim", "tracer/trace_operators"),
)
_FLAGS = ["-O3", "-std=c++20", "-fPIC", "-Wall", "-Wextra", "-Wno-unused-parameter", "-g1"]
_LIBRARIES = ["-ltorch_python", "-ltorch_cpu", "-ltorch", "-lc10"]
_CUDA_SOURCE = "tracer/cuda_allocations"


def key(*, with_cuda: bool = False) -> str:
    """Names the build that fits this interpreter and this torch. with_cuda: it traces CUDA's allocations."""
    digest = hashlib.sha256()
    for part in (torch.__version__, _abi_flag(), sysconfig.get_config_var("SOABI"), platform.machine(), *_FLAGS):
        digest.update(f"{part}\0".encode())
    for source in sorted(SOURCES.rglob("*")):
        if source.suffix in (".h", ".cpp"):
            digest.update(source.relative_to(SOURCES).as_posix().encode() + b"\0" + source.read_bytes())
    cuda = "cuda." if with_cuda else ""
    return f"torch-{torch.__version__}-{sysconfig.get_config_var('SOABI')}-{cuda}{digest.hexdigest()[:16]}"


def find(cache_dir: Path) -> tuple[Path | None, str]:
    """The built library, or None and why it is not there. What was built with CUDA's headers runs without them."""
    for with_cuda in (True, False) if torch.version.cuda is not None else (False,):
        path = _target(cache_dir, with_cuda=with_cuda)
        if path.is_file():
            return path, ""
    return None, f"the native recorder is not built for torch {torch.__version__} (prismdbg builds it in `make setup`)"


def load(cache_dir: Path) -> ModuleType | None:
    """The module, or None where it was not built."""
    path, _ = find(cache_dir)
    if path is None:
        return None
    spec = importlib.util.spec_from_file_location(MODULE, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def build(cache_dir: Path) -> Path:
    """Compiles unless that was done before. Takes about half a minute; raises `FacilityError`.

    With CUDA where its headers are. Recording needs none of them: what does not compile with them is built without.
    """
    if headers := cuda_headers.find():
        with contextlib.suppress(FacilityError):
            return _build(cache_dir, headers)
    return _build(cache_dir, ())


def _build(cache_dir: Path, cuda: Sequence[Path]) -> Path:
    """`cuda`: the folders of its headers; none to build without."""
    target = _target(cache_dir, with_cuda=bool(cuda))
    if target.is_file():
        return target
    compiler = shutil.which(os.environ.get("CXX", "g++"))
    if compiler is None:
        raise FacilityError(
            "no C++ compiler found for the native recorder", hint="install g++, or record with the Python kernels"
        )
    with partial_folder(
        target.parents[1] / "build"
    ) as folder:  # one place: what a killed build left, any build removes
        objects = _compile_all(compiler, folder, cuda)
        linked = folder / "linked"
        libraries = [*_LIBRARIES, *(["-lc10_cuda"] if cuda else [])]
        _run([compiler, "-shared", "-o", str(linked), *map(str, objects), f"-L{_torch_dir() / 'lib'}", *libraries])
        target.parent.mkdir(exist_ok=True)
        linked.replace(target)
    return target


def _target(cache_dir: Path, *, with_cuda: bool) -> Path:
    return cache_dir / "native" / key(with_cuda=with_cuda) / f"{MODULE}.so"


def _torch_dir() -> Path:
    return Path(torch.__file__).parent


def _abi_flag() -> str:
    return f"-D_GLIBCXX_USE_CXX11_ABI={int(torch._C._GLIBCXX_USE_CXX11_ABI)}"


def _compile_all(compiler: str, folder: Path, cuda: Sequence[Path]) -> list[Path]:
    include = _torch_dir() / "include"
    folders = (include, include / "torch" / "csrc" / "api" / "include", Path(sysconfig.get_paths()["include"]))
    command = [compiler, *_FLAGS, _abi_flag(), f"-I{SOURCES}", *(f"-isystem{path}" for path in folders)]
    command += ["-DPRISMDBG_CUDA", *(f"-isystem{path}" for path in cuda)] if cuda else []

    def compile_one(unit: Path) -> Path:
        output = folder / f"{unit.stem}.o"
        _run([*command, "-c", str(unit), "-o", str(output)])
        return output

    with ThreadPoolExecutor(_parallel()) as pool:
        return list(pool.map(compile_one, _units(folder, with_cuda=bool(cuda))))


def _units(folder: Path, *, with_cuda: bool) -> list[Path]:
    """What the compiler is called for, the longest first."""
    alone = {path.relative_to(SOURCES).with_suffix("").as_posix(): path for path in sorted(SOURCES.rglob("*.cpp"))}
    if not with_cuda:
        alone.pop(_CUDA_SOURCE, None)
    units = []
    for names in _TOGETHER:
        sources = [alone.pop(name) for name in names if name in alone]
        unit = folder / f"unit_{Path(names[0]).name}.cpp"
        unit.write_text("".join(f'#include "{source}"\n' for source in sources))
        units.append(unit)
    return units + list(alone.values())


def _parallel() -> int:
    """As many compilers as there are processors and memory for."""
    memory = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return max(1, min(os.cpu_count() or 1, memory // _BYTES_PER_COMPILER))


def _run(command: list[str]) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=COMPILE_TIMEOUT_S)
    except subprocess.TimeoutExpired as error:
        raise FacilityError(
            f"the compiler did not end within {COMPILE_TIMEOUT_S} s", hint="record with the Python kernels"
        ) from error
    if done.returncode != 0:
        lines = [line for line in done.stderr.splitlines() if "error" in line] or done.stderr.splitlines()[-3:]
        raise FacilityError(
            f"{Path(command[0]).name} failed on the native recorder: {'; '.join(lines[:3])}",
            hint="use g++ 11 or newer; recording falls back to the Python kernels (see docs/torch-versions.md)",
        )
