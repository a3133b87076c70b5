"""Iteration time of a real rank and of the same one emulated, for each kind of parallelism: of two pinned ranks, and of
four that sleep where they would compute, so that they may share CPUs."""

from __future__ import annotations

import os
from pathlib import Path

from prismdbg.jobs.record.calibrate import OVERLAP, PROCESSORS
from tests.bench.jobs import PROGRAMS, environment
from tests.bench.sections.emulated_time import TIMED, WARM_UP_STEPS, Job, compared
from tests.bench.settings import Settings
from tests.bench.table import Measured, Row

TITLE = "Iteration time of an emulated rank, by kind of parallelism"
KINDS = {
    "ddp": ("dp=2", "DDP with one bucket"),
    "ddp-overlap": ("dp=2", "DDP with buckets of 2 MB, which overlap with the backward pass"),
    "fsdp2": ("dp=2", "FSDP2, one unit a layer"),
    "tp": ("tp=2", "tensor parallelism with DTensor, a column and a row part a layer"),
    "pp-4": ("pp=2", "a pipeline of 2 stages, 1F1B, 4 microbatches"),
    "pp-8": ("pp=2", "a pipeline of 2 stages, 1F1B, 8 microbatches"),
    "moe": ("ep=2", "experts on 2 ranks, all-to-all of random tokens"),
}
ASLEEP = {
    "ddp-asleep": ("dp=4", "DDP with one bucket"),
    "fsdp2-asleep": ("dp=4", "FSDP2, one unit a layer"),
    "tp-asleep": ("tp=4", "tensor parallelism, an all_reduce in each pass of a layer"),
    "pp-asleep": ("pp=4", "a pipeline of 4 stages, 1F1B, 4 microbatches"),
}


def measure(settings: Settings, folder: Path) -> Measured:
    os.environ.update(environment())  # what emulated ranks are started with
    rows: list[Row] = []
    notes: list[str] = []
    for kind in settings.kinds or (*KINDS, *ASLEEP):
        found = compared(_job(kind, settings, folder), settings.kind_pairs, folder, is_judged=False)
        rows += found.rows
        notes += found.notes
    return Measured(rows=rows, notes=notes)


def _job(kind: str, settings: Settings, folder: Path) -> Job:
    out, steps = folder / kind, settings.paced_steps
    out.mkdir()
    mesh, told = {**KINDS, **ASLEEP}[kind]
    is_asleep = kind in ASLEEP
    how = "CPUs are shared, blocks sleep and compute nothing" if is_asleep else "pinned, layers of width 512"
    return Job(
        name=kind,
        told=f"{told}; over gloo, one thread a rank, {how}; median of {steps - WARM_UP_STEPS} iterations, {TIMED}",
        ranks=int(mesh.partition("=")[2]),
        mesh=mesh,
        program=(str(PROGRAMS / "parallel_steps.py"), kind, str(steps), str(out)),
        out=out,
        passes=settings.paced_passes,
        not_calibrated=(OVERLAP, PROCESSORS) if is_asleep else (),
    )
