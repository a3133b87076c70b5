"""Where prismdbg keeps what it has built or unpacked on this machine."""

from __future__ import annotations

import os
from pathlib import Path


def cache_folder() -> Path:
    """PRISMDBG_CACHE, else the user's cache."""
    if given := os.environ.get("PRISMDBG_CACHE"):
        return Path(given)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "prismdbg"
