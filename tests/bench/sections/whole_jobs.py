"""Step time of whole jobs, one after the other: with the injection and the supervisor, and the noise between jobs."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean

from prismdbg.jobs.storage.run_folder import RunFolder
from tests.bench.jobs import Step, check_native, gpt, recorded, remove_run, run, steps_of
from tests.bench.settings import Settings
from tests.bench.spread import ratios
from tests.bench.table import Measured, Row

TITLE = "Step time, whole jobs in turn"
DEFAULT_GOAL, WINDOW_GOAL = 1.02, 1.10
WARM_UP_STEPS = 5
_JOBS: Mapping[str, Sequence[str] | None] = {
    "bare": None,
    "recorded, all defaults": (),
    "bare again (the noise)": None,
    "recorded, --window 8, NaN trigger": ("--window", "8"),
}
_GOALS = {"recorded, all defaults": DEFAULT_GOAL, "recorded, --window 8, NaN trigger": WINDOW_GOAL}


def measure(settings: Settings, folder: Path) -> Measured:
    means: dict[str, list[float]] = {name: [] for name in _JOBS}
    cpu: dict[str, list[float]] = {name: [] for name in _JOBS}
    for number in range(settings.job_rounds):
        for name, options in list(_JOBS.items())[:: -1 if number % 2 else 1]:  # what drifts favours none
            steps = job_steps(settings, folder, options, settings.job_steps)[WARM_UP_STEPS:]
            means[name].append(fmean(step.seconds for step in steps) * 1e3)
            cpu[name].append(fmean(step.cpu_s for step in steps) * 1e3)
    rows = against_bare(means, _GOALS)
    rows += [replace(row, what=f"processor time: {row.what}", goal=None) for row in against_bare(cpu, {})]
    counted = settings.job_steps - WARM_UP_STEPS
    note = f"A value is the mean of {counted} steps of one job, after {WARM_UP_STEPS}. Processor time: of a rank."
    return Measured(rows=rows, notes=[note])


def against_bare(values: Mapping[str, Sequence[float]], goals: Mapping[str, float]) -> list[Row]:
    """A row for each, in milliseconds, as ratios of pairs with `bare`."""
    rows = [Row(what="bare", values=values["bare"], unit="ms")]
    for name, of in values.items():
        if name != "bare":
            paired = ratios(of, values["bare"])
            rows.append(Row(what=name, against="bare", values=of, unit="ms", ratios=paired, goal=goals.get(name)))
    return rows


def job_steps(settings: Settings, folder: Path, options: Sequence[object] | None, steps: int) -> list[Step]:
    """One job's; `options` of `record`, None for a bare one."""
    path, out = folder / "run", folder / "out"
    out.mkdir()
    job = gpt("--size", settings.size, "--batch", settings.batch, "--out", out, "--steps", steps)
    try:
        run(job if options is None else recorded(path, options, job), folder / "job.txt")
        if options is not None:
            check_native(RunFolder(path))
        return steps_of(out)
    finally:
        remove_run(path)
        shutil.rmtree(out)
