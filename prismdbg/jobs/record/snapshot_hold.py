"""State snapshots from before an incident stay while it settles, is decided among nodes and becomes a capsule.

Ranks write and drop their snapshots themselves. They are asked to drop none meanwhile, and to take none that would have
to be dropped, which also keeps the received data and the log since the oldest one: nothing is copied.
"""

from __future__ import annotations

from collections.abc import Callable

from prismdbg.jobs.storage.run_folder import RunFolder
from prismdbg.settings.state_hold import hold, hold_file, release


class SnapshotHold:
    """On the ranks of one supervisor. `node`: its name in a job of several, else empty. `problem` is told where the
    file cannot be written, which must cost no incident."""

    def __init__(self, run: RunFolder, node: str, problem: Callable[[str], None]) -> None:
        self._problem = problem
        self._states = run.states
        self._file = hold_file(run.states, node)
        self._is_on = False

    def set(self, *, on: bool) -> None:
        """Nothing is written where no rank has registered state."""
        try:
            if on == self._is_on or (on and not self._states.is_dir()):
                return
            (hold if on else release)(self._file)
        except OSError as error:
            self._problem(f"state snapshots are not {'kept for an incident' if on else 'released'}: {error}")
        else:
            self._is_on = on
