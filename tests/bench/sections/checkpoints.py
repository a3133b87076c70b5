"""What `--checkpoint-every` costs, against what the supervisor says that it will."""

from __future__ import annotations

import shutil
from pathlib import Path
from statistics import fmean, median
from typing import Any

from prismdbg.checkpoint import bundle
from prismdbg.jobs.storage.run_folder import RunFolder, read_json
from tests.bench.jobs import BenchError, check_native, gpt, recorded, remove_run, run, steps_of
from tests.bench.sections.whole_jobs import WARM_UP_STEPS, job_steps
from tests.bench.settings import Settings
from tests.bench.table import Measured, Row

TITLE = "Checkpoints, predicted and measured"


def measure(settings: Settings, folder: Path) -> Measured:
    bundle.find()
    every = settings.checkpoint_every
    predicted: list[float] = []
    stood: list[float] = []
    pauses: list[float] = []
    compared: list[float] = []
    for _ in range(settings.checkpoint_rounds):
        without = job_steps(settings, folder, ("--window", 1), settings.checkpoint_steps)
        steps, state = _job(settings, folder)
        predicted.append(100 * float(state["checkpoint_slowdown_predicted"]))
        pauses += [cost["paused_ns"] / 1e9 for cost in state["checkpoints"]]
        rounds = steps[every + every // 2 : len(steps) // every * every]  # whole rounds after the first
        whole = rounds[: len(rounds) // every * every]
        stood.append(100 * (fmean(whole) / median(whole) - 1))
        compared.append(100 * (fmean(whole) / fmean(step.seconds for step in without[WARM_UP_STEPS:]) - 1))
    rows = [
        Row(what=f"predicted by the supervisor, every {every} steps", values=predicted, unit="%"),
        Row(
            what="measured: mean step over median step of the same job",
            against="predicted",
            values=stood,
            unit="%",
            ratios=[m / p for m, p in zip(stood, predicted, strict=True)],
        ),
        Row(
            what="measured: mean step over that of a job with --window 1",
            against="predicted",
            values=compared,
            unit="%",
            ratios=[m / p for m, p in zip(compared, predicted, strict=True)],
        ),
        Row(what="one checkpoint of one rank", values=pauses, unit="s", digits=3),
    ]
    return Measured(rows=rows, notes=["Slowdown in per cent of the job's time, over whole rounds after the first."])


def _job(settings: Settings, folder: Path) -> tuple[list[float], dict[str, Any]]:
    path, out = folder / "run", folder / "out"
    out.mkdir()
    program = gpt(
        "--size", settings.size, "--batch", settings.batch, "--out", out, "--steps", settings.checkpoint_steps
    )
    try:
        said = run(recorded(path, ("--checkpoint-every", settings.checkpoint_every), program), folder / "job.txt")
        check_native(RunFolder(path))
        state = read_json(RunFolder(path).supervisor_json)
        if "checkpoint_slowdown_predicted" not in state:
            raise BenchError(f"no checkpoints were taken:\n{said[-2000:]}")
        return [step.seconds for step in steps_of(out)], state
    finally:
        remove_run(path)
        shutil.rmtree(out)
