"""Iteration time of a real rank and of the same rank emulated, for each kind of parallelism, on two pinned ranks."""

from __future__ import annotations

import os
from pathlib import Path

from tests.bench.jobs import PROGRAMS, environment
from tests.bench.sections.emulated_time import WARM_UP_STEPS, Job, compared
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


def measure(settings: Settings, folder: Path) -> Measured:
    os.environ.update(environment())  # what emulated ranks are started with
    rows: list[Row] = []
    notes: list[str] = []
    for kind in settings.kinds or KINDS:
        found = compared(_job(kind, settings, folder), settings.kind_pairs, folder, is_judged=False)
        rows += found.rows
        notes += found.notes
    return Measured(rows=rows, notes=notes)


def _job(kind: str, settings: Settings, folder: Path) -> Job:
    out, steps = folder / kind, settings.paced_steps
    out.mkdir()
    mesh, told = KINDS[kind]
    return Job(
        name=kind,
        told=f"{told}; layers of width 512 over gloo, one thread a rank, pinned; median of {steps - WARM_UP_STEPS} "
        "iterations, as the program itself times them.",
        ranks=2,
        mesh=mesh,
        program=(str(PROGRAMS / "parallel_steps.py"), kind, str(steps), str(out)),
        out=out,
        passes=settings.paced_passes,
    )
