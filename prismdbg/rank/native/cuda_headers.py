"""Finds the CUDA headers that the extension needs to follow torch's allocator on GPUs."""

from __future__ import annotations

import os
from pathlib import Path

import torch

_HEADER = "cuda_runtime_api.h"
SYSTEM = Path("/usr/local/cuda/include")


def find() -> Path | None:
    """The folder with the headers; None where torch has no CUDA or no headers are there."""
    if torch.version.cuda is None:
        return None
    return next((folder for folder in _candidates() if (folder / _HEADER).is_file()), None)


def missing() -> str:
    """Empty, or why an extension that is built here does not trace CUDA's allocations."""
    if torch.version.cuda is None:
        return "this torch has no CUDA"
    if find() is None:
        return f"no {_HEADER} in $CUDA_HOME/include, the nvidia packages or {SYSTEM}"
    return ""


def _candidates() -> list[Path]:
    """Those of the toolkit that the user named, those that torch's own packages bring, those of the machine."""
    home = os.environ.get("CUDA_HOME")
    packages = Path(torch.__file__).parents[1] / "nvidia"
    of_torch = f"cu{torch.version.cuda.partition('.')[0]}" if torch.version.cuda else "cu*"
    return [
        *([Path(home) / "include"] if home else []),
        *sorted(packages.glob(f"{of_torch}/include")),
        packages / "cuda_runtime" / "include",
        SYSTEM,
    ]
