"""What `record --state-every` costs: step time of whole jobs in turn, and how long a snapshot holds the program."""

from __future__ import annotations

import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean, median

from prismdbg.jobs.storage.run_folder import RunFolder
from prismdbg.log.rank_log import read_log
from tests.bench.jobs import check_native, gpt, recorded, remove_run, run, steps_of
from tests.bench.sections.whole_jobs import WARM_UP_STEPS, against_bare
from tests.bench.settings import Settings
from tests.bench.table import Measured, Row

TITLE = "State snapshots: step time, and how long one holds the program"
GOAL = 1.02
_COPIES = 5
Snapshots = list[Mapping[str, int]]


def measure(settings: Settings, folder: Path) -> Measured:
    every = settings.state_every
    jobs: Mapping[str, Sequence[object] | None] = {
        "bare": None,
        "recorded, --window 1": ("--window", "1"),
        f"recorded, --state-every {every}": ("--state-every", every),
    }
    filling: dict[str, list[float]] = {name: [] for name in jobs}
    filled: dict[str, list[float]] = {name: [] for name in jobs}
    # Two snapshots are kept, and what was received since the older; with the third, the first memory is used again.
    full_at = 3 * every + WARM_UP_STEPS
    taken: Snapshots = []
    for number in range(settings.job_rounds):
        for name, options in list(jobs.items())[:: -1 if number % 2 else 1]:  # what drifts favours none
            seconds, snapshots = _job(settings, folder, options)
            filling[name].append(fmean(seconds[WARM_UP_STEPS:full_at]) * 1e3)
            filled[name].append(fmean(seconds[full_at:]) * 1e3)
            taken += snapshots
    goals = {f"recorded, --state-every {every}": GOAL}
    size = taken[0]["bytes"]
    copies = [_copy_ms(size) for _ in range(_COPIES)]
    held = [one["copied_ns"] / 1e6 for one in taken]
    rows = [
        *against_bare(filled, goals),
        *(replace(row, what=f"{row.what}: the first {full_at} steps") for row in against_bare(filling, {})),
        Row(what="a copy of as many bytes", values=copies, unit="ms", digits=2),
        Row(what="a snapshot holds the program", values=held, unit="ms", digits=2),
        Row(what="writing it beside the program", values=[one["written_ns"] / 1e6 for one in taken], unit="ms"),
    ]
    notes = [
        f"GPT {settings.size}, batch {settings.batch}, DDP over gloo, 2 ranks; {settings.state_steps} steps a job. "
        f"Snapshots of {size / (1 << 20):.1f} MiB a rank. --state-every also keeps what is received, as a window does: "
        f"the job with --window 1 shows that part of the cost. In the first {full_at} steps (of them the first "
        f"{WARM_UP_STEPS} do not count) the memory for it is touched for the first time; after that it is used again.",
        f"The first snapshot of a rank touches new memory: {max(held):.1f} ms at most, {median(held):.1f} ms usually.",
    ]
    return Measured(rows=rows, notes=notes)


def _job(settings: Settings, folder: Path, options: Sequence[object] | None) -> tuple[list[float], Snapshots]:
    """Seconds of each step, and the snapshots that were taken."""
    path, out = folder / "run", folder / "out"
    out.mkdir()
    program = ["--size", settings.size, "--batch", settings.batch, "--out", out, "--steps", settings.state_steps]
    job = gpt(*program, "--restore-point")
    try:
        run(job if options is None else recorded(path, options, job), folder / "job.txt")
        found: Snapshots = []
        if options is not None:
            check_native(RunFolder(path))
            notes = [note for rank in RunFolder(path).rank_folders() for note in read_log(rank).notes]
            found = [note.data for note in notes if note.kind == "state_snapshot"]
        return [step.seconds for step in steps_of(out)], found
    finally:
        remove_run(path)
        shutil.rmtree(out)


def _copy_ms(size_bytes: int) -> float:
    """Between two pieces of memory that were touched before."""
    source, target = memoryview(bytearray(b"\1") * size_bytes), memoryview(bytearray(b"\2") * size_bytes)
    began = time.perf_counter()
    target[:] = source
    return (time.perf_counter() - began) * 1e3
