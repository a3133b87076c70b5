"""Waits until a rank that is to be captured runs, or is in a step."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from prismdbg.capsule.log.batch import Batch
from prismdbg.capsule.log.follower import LogFollower
from prismdbg.capsule.log.reader import event_segments
from prismdbg.errors import CapsuleError, UsageError, WaitTimeout
from prismdbg.jobs.storage.job_nodes import NodeState, node_states, supervisor_report
from prismdbg.jobs.storage.ranks_alive import RankProcess, was_replaced
from prismdbg.jobs.storage.run_folder import RunFolder, rank_of
from prismdbg.jobs.storage.run_report import RankState, state_of_rank
from prismdbg.model.meanwhile import working
from prismdbg.model.moment import Moment

POLL_S, MOST_POLL_S = 0.2, 1.0  # ever more seldom
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
        began, tell, poll_s = time.monotonic(), say, POLL_S
        with working() as working_tell:
            looked = self._look()
            while not self._is_there(state := looked.state):
                at = f"at {state.moment}" if state is not None else "it has not started"
                if time.monotonic() - began > self.timeout_s:
                    what = f"waited {self.timeout_s:g} s for {self._what}: {at}"
                    raise WaitTimeout(what, hint="give a longer --timeout")
                tell(f"waiting for {self._what}: {at}")
                tell = working_tell  # said once at once, then as all long work
                pause(poll_s)
                poll_s = min(1.5 * poll_s, MOST_POLL_S)
                looked = looked.further(self.step) or self._look()

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

    def _look(self) -> _Looked:
        """At the rank's last attempt; without a state until it has a log."""
        run = RunFolder(self.run.resolve())
        if not run.run_json.is_file():
            return _Looked()
        nodes = node_states(run)
        folder = next((each for each in reversed(run.rank_folders()) if rank_of(each) == self.rank), None)
        log = None if folder is None else _follower(folder, nodes)  # from before the state
        state = state_of_rank(run, self.rank, nodes)
        if state is None and "exit_code" in supervisor_report(run):
            raise UsageError(
                f"the job has ended, and {self.run} contains no data of rank {self.rank}",
                hint="choose another rank: `prismdbg status` lists them",
            )
        return _Looked(state=state, log=log)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Looked:
    """`log`: what is written to it from now on."""

    state: RankState | None = None
    log: LogFollower | None = None

    def further(self, step: int) -> _Looked | None:
        """Where a rank that runs is, still before that step: from what it wrote since, without another look at its
        whole log. None where that does not say so."""
        if self.state is None or self.log is None:
            return None
        try:
            last = [event.last for event in self.log.poll() if isinstance(event, Batch) and event.last is not None]
            if not last:
                return self if _runs(self.log.folder) else None
        except (CapsuleError, OSError):  # the next look says what is wrong with it
            return None
        moment = last[-1].moment
        return replace(self, state=replace(self.state, moment=str(moment))) if moment.step < step else None


def _runs(folder: Path) -> bool:
    return RankProcess(folder).is_alive() and not was_replaced(folder)


def _follower(folder: Path, nodes: Sequence[NodeState]) -> LogFollower | None:
    """Of the end of a log; None where it cannot be read from here."""
    logs = next((node.logs_of(folder) for node in nodes if folder.name in node.ranks), folder)
    newest = max((number for number, _ in event_segments(logs)), default=None)
    if newest is None:
        return None
    log = LogFollower(logs, newest)
    with suppress(CapsuleError, OSError):
        log.poll()
    return log
