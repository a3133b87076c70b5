"""What the figures belong to."""

from __future__ import annotations

import os
import platform
import subprocess
from pathlib import Path

import torch

ROOT = Path(__file__).resolve().parents[2]


def describe() -> str:
    properties = torch.cuda.get_device_properties(0)
    return (
        f"{properties.name} ({properties.total_memory / 2**30:.0f} GiB), driver {_driver()}; {os.cpu_count()} CPUs, "
        f"Linux {platform.release()}; Python {platform.python_version()}, torch {torch.__version__}; "
        f"prismdbg {_commit()}"
    )


def _driver() -> str:
    command = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=30).stdout.split()[0]
    except (OSError, subprocess.SubprocessError, IndexError):
        return "unknown"


def _commit() -> str:
    """Of the working tree; a machine that has only a copy of it is told by PRISMDBG_COMMIT."""
    command = ["git", "describe", "--always", "--dirty"]
    try:
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return os.environ.get("PRISMDBG_COMMIT", "unknown")
