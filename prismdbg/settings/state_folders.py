"""Where the state snapshots of a rank lie in RUN, and their names: written by the rank, read by the host."""

from __future__ import annotations

from pathlib import Path

STATES = "states"  # RUN/states/<rank>[.<attempt>]/<step>
KEPT = 2


def states_of(home: Path) -> list[int]:
    """The steps of the whole snapshots in a rank's folder, oldest first."""
    if not home.is_dir():
        return []
    return sorted(int(path.name) for path in home.iterdir() if path.name.isascii() and path.name.isdecimal())
