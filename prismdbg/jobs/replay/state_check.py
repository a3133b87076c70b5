"""`prismdbg verify --state`: whether the steps after a state snapshot are the same in a replay, also of a live job."""

from __future__ import annotations

import os
from dataclasses import dataclass

from prismdbg.capsule.manifest import Incident, IncidentKind, Manifest
from prismdbg.capsule.partial import partial_folder
from prismdbg.jobs.capture.capture_state import capture_state
from prismdbg.jobs.replay.compare import Verdict, run_to_end
from prismdbg.jobs.replay.replay import ReplayRequest, Say, open_replay
from prismdbg.jobs.replay.verdict import Outcome
from prismdbg.jobs.storage.run_folder import RunFolder
from prismdbg.model.deadline import Deadline
from prismdbg.model.moment import Moment
from prismdbg.model.plurals import counted

NICENESS = 10  # the job's ranks come first


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """`start`: the snapshot's moment; `steps`: how many steps after it were replayed."""

    verdict: Verdict
    start: Moment
    steps: int


def check_state(run: RunFolder, rank: int, *, steps: int, runtime: str, timeout_s: float, say: Say) -> Checked:
    """Leaves nothing in the run."""
    os.nice(NICENESS)
    incident = Incident(kind=IncidentKind.REQUEST, text="the state snapshot is verified")
    with partial_folder(run.path / "verify") as partial:
        capsule = capture_state(
            run, run.latest(rank), partial / f"state-rank{rank}", incident, whole_steps=steps, timeout_s=timeout_s,
            and_no_more=True,
        )  # fmt: skip
        deadline = Deadline.after(timeout_s)
        with open_replay(ReplayRequest(capsule=capsule, runtime=runtime, deadline=deadline), say) as live:
            verdict = run_to_end(live, until=None, strict=False, deadline=deadline)
        return checked(verdict, capsule.manifest, steps)


def checked(verdict: Verdict, manifest: Manifest, wanted: int) -> Checked:
    """An identical replay of fewer than the wanted steps says too little: of a rank that has ended there may be no
    more."""
    start, steps = manifest.moment_a, manifest.moment_b.step - manifest.moment_a.step
    if verdict.outcome is Outcome.IDENTICAL and steps < wanted:
        verdict.outcome = Outcome.INCONCLUSIVE
        verdict.why = f"the recording has {counted(steps, 'step')} after the newest state snapshot, fewer than {wanted}"
    return Checked(verdict=verdict, start=start, steps=steps)
