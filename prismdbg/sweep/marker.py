"""How the folder of a sweep is known. Apart from all else of it: `prismdbg open` asks it of every path."""

from __future__ import annotations

from pathlib import Path

DESCRIPTION = "sweep.json"


def is_sweep(path: Path) -> bool:
    return (path / DESCRIPTION).is_file()
