"""Step time of whole jobs, one after the other: with the injection and the supervisor, and the noise between jobs."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean

from prismdbg.workflows.run_folder import RunFolder
from tests.bench.jobs import check_native, gpt, recorded, remove_run, run, steps_of
from tests.bench.sections.steps import DEFAULT_GOAL, WINDOW_GOAL
from tests.bench.settings import Settings
from tests.bench.spread import ratios
from tests.bench.table import Measured, Row

TITLE = "Step time, whole jobs in turn"
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
    for _ in range(settings.job_rounds):
        for name, options in _JOBS.items():
            means[name].append(fmean(job_steps(settings, folder, options, settings.job_steps)[WARM_UP_STEPS:]) * 1e3)
    rows = [Row(what="bare", values=means["bare"], unit="ms")]
    rows += [
        Row(
            what=name,
            against="bare",
            values=means[name],
            unit="ms",
            ratios=ratios(means[name], means["bare"]),
            goal=_GOALS.get(name),
        )
        for name in list(_JOBS)[1:]
    ]
    counted = settings.job_steps - WARM_UP_STEPS
    return Measured(rows=rows, notes=[f"A value is the mean of {counted} steps of one job, after {WARM_UP_STEPS}."])


def job_steps(settings: Settings, folder: Path, options: Sequence[object] | None, steps: int) -> list[float]:
    """Seconds of each step of one job; `options` of `record`, None for a bare one."""
    path, out = folder / "run", folder / "out"
    out.mkdir()
    job = gpt("--size", settings.size, "--batch", settings.batch, "--out", out, "--steps", steps)
    try:
        run(job if options is None else recorded(path, options, job), folder / "job.txt")
        if options is not None:
            check_native(RunFolder(path))
        return [seconds for _, seconds in steps_of(out)]
    finally:
        remove_run(path)
        shutil.rmtree(out)
