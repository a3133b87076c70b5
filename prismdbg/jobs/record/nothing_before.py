"""An incident before which nothing was kept that a replay can start at: why, what to change, the log as evidence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from prismdbg.errors import CapsuleError, NotReplayable, PrismError
from prismdbg.jobs.capture.assemble import CONTEXT_RECORDS, Ingredients, assemble
from prismdbg.jobs.capture.states import list_states
from prismdbg.jobs.record.checkpoints import list_checkpoints
from prismdbg.jobs.storage.run_folder import RunFolder, read_json
from prismdbg.log.columns import LAST_BYTES, read_whole
from prismdbg.model.moment import Moment


def nothing_before(parts: Ingredients) -> CapsuleError:
    """`NotReplayable`, and the log as evidence, where the run was recorded so that capsules can be made.

    `parts`: of the capsule from the program's start, whose output is free.
    """
    run, moment = parts.run, parts.incident.moment
    config = read_json(run.config)
    what = f"no capsule of rank {parts.folder.name}"
    why, hint = _why(run, parts.folder, moment)
    if not any(config.get(name) for name in ("checkpoint_every", "state_every", "window_steps")):
        return CapsuleError(f"{what}: {why}", hint=hint)
    try:
        run.capsules.mkdir(exist_ok=True, mode=0o700)
        assemble(replace(parts, past_records=_context_from(parts.folder, moment), log_only=True))
    except NotReplayable as made:
        text = f"{what}: {why}; its log is kept as evidence in {made.evidence}"
        return NotReplayable(text, hint=hint, evidence=made.evidence)
    except (PrismError, OSError) as error:  # a full disk, say; the reason is still told
        return CapsuleError(f"{what}: {why}; its log is not kept as evidence: {error}", hint=hint)
    raise AssertionError("a capsule of a log alone cannot be replayed")


def _context_from(folder: Path, incident: Moment | None) -> int:
    """The first collective of the evidence."""
    log = read_whole(folder, LAST_BYTES)
    row = len(log) if incident is None else log.row_at(incident)
    number = int(log.record_id[row]) if row < len(log) else log.issued
    return max(number - CONTEXT_RECORDS, 0)


def _why(run: RunFolder, folder: Path, incident: Moment | None) -> tuple[str, str]:
    """The reason, and what to do."""
    config = read_json(run.config)
    states, checkpoints = list_states(run, folder), list_checkpoints(run, folder)
    lost_moments = [checkpoint.moment for checkpoint in checkpoints if not checkpoint.is_in(folder)]
    lost_steps = [state.moment.step for state in states if not state.is_in(folder)]
    if lost := [
        *_named("checkpoint at", "checkpoints at", lost_moments),
        *_named("snapshot of step", "snapshots of steps", lost_steps),
    ]:
        return (
            f"the log no longer reaches back to {' and '.join(lost)}",
            "record with a larger --log-bytes, or take them more often",
        )
    if incident is not None and states:
        steps = [state.moment.step for state in states]
        return (
            f"{_are('snapshot of step', 'snapshots of steps', steps)} after the incident",
            _advice("--state-every", config.get("state_every", 0), incident.step, steps[-1]),
        )
    if incident is not None and checkpoints:
        moments = [checkpoint.moment for checkpoint in checkpoints]
        return (
            f"{_are('checkpoint at', 'checkpoints at', moments)} after the incident",
            _advice("--checkpoint-every", config.get("checkpoint_every", 0), incident.step, moments[-1].step),
        )
    if incident is not None and incident.step < (every := config.get("state_every") or 0):
        return (
            f"it was in step {incident.step}, before the first state snapshot (--state-every {every})",
            "record with --window all, too, to replay from the program's start, or take snapshots more often",
        )
    if config.get("state_every"):
        return (
            "it took no state snapshot before the incident",
            "call prismdbg.restore_point before the loop of the program, or use a framework that prismdbg knows; "
            "`record` says if a state cannot be registered",
        )
    if config.get("checkpoint_every"):
        return "no checkpoint was taken before the incident", "`prismdbg status RUN` shows problems with checkpoints"
    from_start = "" if run.keeps_all else ", or with --window all to replay from the program's start"
    return (
        "no data from before the incident was kept",
        f"record with --checkpoint-every or --state-every STEPS{from_start}",
    )


def _advice(option: str, every: int, incident: int, newest: int) -> str:
    """Of snapshots or checkpoints that are all too late. With more steps between them the first one might be, too."""
    if (steps := less_often(every, incident, newest)) > incident:
        return "record with --window all, too, to replay from the program's start"
    return f"take them less often: {option} {steps}"


def less_often(every: int, incident: int, newest: int) -> int:
    """A round number of steps so that of two one stays: the incident was seen up to `every` steps after `newest`."""
    least, power = max(newest + every - incident, 2 * every), 1
    while True:
        for factor in (1, 2, 5):
            if (steps := factor * power) >= least:
                return steps
        power *= 10


def _are(one: str, several: str, values: Sequence[object]) -> str:
    """`the snapshot of step 4 is`, `the snapshots of steps 4 and 8 are`."""
    return f"{_named(one, several, values)[0]} {'is' if len(values) == 1 else 'are'}"


def _named(one: str, several: str, values: Sequence[object]) -> list[str]:
    """`the snapshot of step 4`, `the snapshots of steps 4 and 8`; nothing where there is none."""
    if len(values) < 2:
        return [f"the {one} {value}" for value in values]
    return [f"the {several} {', '.join(map(str, values[:-1]))} and {values[-1]}"]
