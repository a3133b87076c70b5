"""The starter's files as modules; they are no package, for an interpreter runs them alone."""

from __future__ import annotations

import importlib
import sys
from types import SimpleNamespace
from typing import Any

from prismdbg.runtime.starter_spec import starter_file

PARTS = (
    "syscalls",
    "mounts",
    "confine",
    "rooted_tree",
    "rank_files",
    "engine",
    "criu",
    "choice",
    "gpu_state",
    "folder_digest",
    "place",
    "limits",
    "output",
    "rank",
    "exact_paths",
    "kept_files",
    "private_folders",
    "checkpoints",
    "starter",
)


def starter_parts() -> Any:
    """All names of all of them."""
    sys.path.append(str(starter_file().parent))
    try:
        parts = [importlib.import_module(name) for name in PARTS]
    finally:
        sys.path.remove(str(starter_file().parent))
    return SimpleNamespace(**{name: value for part in parts for name, value in vars(part).items()})
