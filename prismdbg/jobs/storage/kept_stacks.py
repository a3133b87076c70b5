"""Stacks of all ranks, as the run folder keeps them: one file for each time they were taken."""

from __future__ import annotations

from prismdbg.capsule import checked_json
from prismdbg.capsule.stacks import MAX_BYTES, JobStacks
from prismdbg.jobs.storage.run_folder import RunFolder, write_json

KEPT = 16  # of a run: the newest


def keep_stacks(run: RunFolder, taken: JobStacks) -> None:
    run.stacks.mkdir(exist_ok=True, mode=0o700)
    write_json(run.stacks / f"{taken.taken_wall_ns}.json", taken.bounded().to_json())
    for path in sorted(run.stacks.glob("*.json"))[:-KEPT]:
        path.unlink(missing_ok=True)


def last_stacks(run: RunFolder, attempt: int) -> JobStacks | None:
    """The newest of that attempt. `CapsuleError` where they are damaged."""
    for path in sorted(run.stacks.glob("*.json"), reverse=True) if run.stacks.is_dir() else ():
        taken = JobStacks.from_fields(checked_json.read(path, limit_bytes=MAX_BYTES))
        if taken.attempt == attempt:
            return taken
    return None
