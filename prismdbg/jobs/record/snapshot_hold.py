"""State snapshots from before an incident stay while it settles, is decided among nodes and becomes a capsule.

Ranks write and drop their snapshots themselves. They are asked to take none meanwhile, which also keeps the received
data and the log since the oldest one: nothing is copied, and nothing is kept beside the two snapshots that there are.
"""

from __future__ import annotations

from prismdbg.jobs.storage.run_folder import RunFolder
from prismdbg.settings.state_hold import hold, hold_file, release


class SnapshotHold:
    """On the ranks of one supervisor. `node`: its name in a job of several, else empty."""

    def __init__(self, run: RunFolder, node: str) -> None:
        self._states = run.states
        self._file = hold_file(run.states, node)
        self._is_on = False

    def set(self, *, on: bool) -> None:
        """Nothing is written where no rank has registered state."""
        if on and not self._is_on and self._states.is_dir():
            hold(self._file)
            self._is_on = True
        elif self._is_on and not on:
            release(self._file)
            self._is_on = False
