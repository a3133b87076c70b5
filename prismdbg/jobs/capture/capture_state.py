"""`prismdbg capture` where state snapshots are kept: nothing is asked of the rank, and no privilege is needed."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from prismdbg.capsule.capsule_dir import Capsule
from prismdbg.capsule.manifest import Incident, Origin
from prismdbg.errors import CapsuleError, WaitTimeout
from prismdbg.jobs.capture.assemble import Ingredients, assemble
from prismdbg.jobs.capture.states import KeptState, last_complete, pinned, usable_states, while_dropped, why_lost
from prismdbg.jobs.storage.ranks_alive import RankProcess
from prismdbg.jobs.storage.run_folder import RunFolder
from prismdbg.model.moment import Moment
from prismdbg.model.plurals import counted
from prismdbg.protocol.client import NotWaitedFor

POLL_S = 0.5


def capture_state(
    run: RunFolder,
    folder: Path,
    output: Path,
    incident: Incident,
    *,
    whole_steps: int,
    timeout_s: float,
    and_no_more: bool = False,
    given_up: Callable[[], bool] | None = None,
) -> Capsule:
    """From the newest snapshot that so many whole steps follow, or where the rank has ended the newest there is; to the
    rank's last complete collective, or with `and_no_more` to the end of these steps. `NotWaitedFor` once `given_up`
    says so and there is none yet."""
    deadline = time.monotonic() + timeout_s

    def capture_newest() -> Capsule:
        state, last = _await(run, folder, whole_steps, deadline, timeout_s, given_up)
        if and_no_more:
            last = min(last, Moment(state.moment.step + whole_steps, 1 << 60))
        with pinned(run, folder, state) as (log, snapshot):
            return assemble(
                Ingredients(
                    run=run,
                    folder=log,
                    output=output,
                    origin=Origin.STATE,
                    incident=incident,
                    past_records=state.past_records,
                    state=snapshot,
                    last_moment=last,
                )
            )

    return while_dropped(capture_newest)


def _await(
    run: RunFolder,
    folder: Path,
    whole_steps: int,
    deadline: float,
    timeout_s: float,
    given_up: Callable[[], bool] | None,
) -> tuple[KeptState, Moment]:
    while True:
        alive = RankProcess(folder).is_alive()
        states, last = usable_states(run, folder), last_complete(folder)
        followed = [state for state in states if state.moment.step + whole_steps < last.step]
        if followed:
            return followed[-1], last
        if states and not alive:
            return states[-1], last
        if not alive:
            raise _no_state(folder.name, why_lost(run, folder))
        if given_up is not None and given_up():
            raise NotWaitedFor(f"the wait for a state snapshot of rank {folder.name} was cancelled")
        if time.monotonic() > deadline:
            raise WaitTimeout(
                f"waited {timeout_s:g} s for a state snapshot of rank {folder.name} and "
                f"{counted(whole_steps, 'step')} after it{why_lost(run, folder)}",
                hint="give a longer --timeout, or a smaller --window",
            )
        time.sleep(POLL_S)


def _no_state(name: str, why: str) -> CapsuleError:
    hint = (
        "record with a larger --log-bytes, or take snapshots more often"
        if why
        else "record with --state-every STEPS, and call prismdbg.restore_point before the loop of the program, or use "
        "a framework that prismdbg knows"
    )
    return CapsuleError(f"rank {name} has no state snapshot{why}", hint=hint)
