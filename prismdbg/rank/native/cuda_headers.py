"""Finds the CUDA headers that the extension needs to follow torch's allocator on GPUs."""

from __future__ import annotations

import os
from pathlib import Path

import torch

HEADER = "cuda_runtime_api.h"
SYSTEM = Path("/usr/local/cuda/include")
_PARTS = "crt/host_defines.h"  # which it includes; NVIDIA's packages of the runtime lack it, triton's has it


def find() -> tuple[Path, ...]:
    """The folders to search for headers, in that order; none where torch has no CUDA or no headers are there."""
    if torch.version.cuda is None:
        return ()
    return next((folders for folders in _candidates() if _are_enough(folders)), ())


def missing() -> str:
    """Empty, or why an extension that is built here does not trace CUDA's allocations."""
    if torch.version.cuda is None:
        return "this torch has no CUDA"
    return "" if find() else f"no {HEADER} in $CUDA_HOME/include, {SYSTEM} or the nvidia and triton packages"


def _are_enough(folders: tuple[Path, ...]) -> bool:
    return all(any((folder / name).is_file() for folder in folders) for name in (HEADER, _PARTS))


def _candidates() -> list[tuple[Path, ...]]:
    """Those of the toolkit that the user named, of the machine's, and of the packages that come with torch."""
    home = os.environ.get("CUDA_HOME")
    packages = Path(torch.__file__).parents[1]
    of_runtime = [*sorted(packages.glob("nvidia/cu[0-9]*/include")), packages / "nvidia" / "cuda_runtime" / "include"]
    of_triton = packages / "triton" / "backends" / "nvidia" / "include"
    return [
        *([(Path(home) / "include",)] if home else []),
        (SYSTEM,),
        *((folder, of_triton) for folder in of_runtime),
    ]
