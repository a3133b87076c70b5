"""Where the state snapshots of a rank lie in RUN, and their names: written by the rank, read by the host."""

from __future__ import annotations

from pathlib import Path

STATES = "states"  # RUN/states/<rank>[.<attempt>]/<step>
KEPT = 2
SMALL_BYTES = 64 << 10  # a payload before the restore point: what the program is told, not what it trains
ALL_SMALL_BYTES = 256 << 20  # so much of these is kept beside `--window-bytes`
_UNFINISHED = ".partial"


def unfinished(home: Path, step: int) -> Path:
    """One that is being written or removed: nobody takes half of it for a whole one."""
    return home / f".{step}{_UNFINISHED}"


def unfinished_in(states: Path) -> list[Path]:
    """Of all ranks."""
    return sorted(states.glob(f"*/.*{_UNFINISHED}"))


def states_of(home: Path) -> list[int]:
    """The steps of the whole snapshots in a rank's folder, oldest first."""
    if not home.is_dir():
        return []
    return sorted(int(path.name) for path in home.iterdir() if path.name.isascii() and path.name.isdecimal())
