"""Waits until a rank that is to be captured runs, or is in a step."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from prismdbg.errors import UsageError, WaitTimeout
from prismdbg.jobs.storage.job_nodes import node_states, supervisor_report
from prismdbg.jobs.storage.run_folder import RunFolder, rank_of
from prismdbg.jobs.storage.run_report import RankState, rank_states
from prismdbg.model.meanwhile import working
from prismdbg.model.moment import Moment

POLL_S = 0.2
_OVER = ("ended", "failed", "died", "lost")
Say = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Awaited:
    """`step`: the rank has issued a collective of it, or of a later one; 0 waits for its first collective."""

    run: Path
    rank: int
    step: int
    timeout_s: float

    @property
    def _what(self) -> str:
        return f"step {self.step} of rank {self.rank}" if self.step else f"rank {self.rank}"

    def wait(self, say: Say, pause: Callable[[float], None] = time.sleep) -> None:
        """`UsageError` where the rank has ended before it, `WaitTimeout` after `timeout_s`."""
        began, tell = time.monotonic(), say
        with working() as working_tell:
            while not self._is_there(state := self._state()):
                at = f"at {state.moment}" if state is not None else "it has not started"
                if time.monotonic() - began > self.timeout_s:
                    what = f"waited {self.timeout_s:g} s for {self._what}: {at}"
                    raise WaitTimeout(what, hint="give a longer --timeout")
                tell(f"waiting for {self._what}: {at}")
                tell = working_tell  # said once at once, then as all long work
                pause(POLL_S)

    def _is_there(self, state: RankState | None) -> bool:
        if state is None or state.collectives == 0:
            return False
        if Moment.parse(state.moment).step >= self.step and state.state not in _OVER:
            return True
        if state.state in _OVER:
            raise UsageError(
                f"rank {self.rank} has ended at {state.moment}",
                hint=f"run `prismdbg debug {self.run} --rank {self.rank}`: it uses what was recorded",
            )
        return False

    def _state(self) -> RankState | None:
        """Of the rank's last attempt; None until it has a log."""
        run = RunFolder(self.run.resolve())
        if not run.run_json.is_file():
            return None
        found = [state for state in rank_states(run, node_states(run)) if rank_of(Path(state.name)) == self.rank]
        if not found and "exit_code" in supervisor_report(run):
            raise UsageError(
                f"the job has ended, and {self.run} contains no data of rank {self.rank}",
                hint="choose another rank: `prismdbg status` lists them",
            )
        return found[-1] if found else None
