"""Step time of a recorded job against the same job bare: in turn inside one pair of processes."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean, median

from prismdbg.workflows.run_folder import RunFolder
from tests.bench.jobs import Step, check_native, gpt, recorded, remove_run, run, steps_of
from tests.bench.sections.whole_jobs import DEFAULT_GOAL, WINDOW_GOAL, against_bare
from tests.bench.settings import Settings
from tests.bench.table import Measured

TITLE = "Step time, modes in turn in the same processes"
_WHAT = {
    "bare": "bare",
    "bare again": "bare again (the noise)",
    "off": "kernels in place, recording off",
    "recorded": "recorded, all defaults",
    "window 1": "recorded, --window 1, NaN trigger",
    "window 8": "recorded, --window 8, NaN trigger",
}
_GOALS = {"recorded": DEFAULT_GOAL, "window 1": WINDOW_GOAL, "window 8": WINDOW_GOAL}


def measure(settings: Settings, folder: Path) -> Measured:
    blocks = _blocks(_train(settings, folder), settings.block_steps, settings.dropped_steps)
    goals = {_WHAT[mode]: goal for mode, goal in _GOALS.items()}
    rows = against_bare(_means(blocks, lambda step: step.seconds), goals)
    cpu = against_bare(_means(blocks, lambda step: step.cpu_s), {})
    rows += [replace(row, what=f"processor time: {row.what}") for row in cpu]
    kept = settings.block_steps - settings.dropped_steps
    notes = [
        f"GPT {settings.size}, batch {settings.batch}, DDP over gloo, 2 ranks, 1 thread each. A value is the mean of "
        f"{kept} steps of a block (the first {settings.dropped_steps} after a switch do not count), so that what "
        "happens every few steps, such as a new payload segment, is in it. The record's injection and supervisor are "
        "there in every mode: section 'whole jobs' holds those too.",
        "The NaN trigger is one of the defaults, so both sides of every transfer are looked through in every recorded "
        "mode.",
        "Processor time is a rank's, all its threads together, also those that work beside the training: what is left "
        "of the difference on a machine with processors to spare is the step time's.",
        "Ratios of the median single step: " + ", ".join(_medians(blocks)) + ".",
    ]
    return Measured(rows=rows, notes=notes)


def _train(settings: Settings, folder: Path) -> list[Step]:
    path, out = folder / "run", folder / "out"
    out.mkdir()
    program = ["--size", settings.size, "--batch", settings.batch, "--out", out]
    program += ["--rounds", settings.rounds, "--block", settings.block_steps]
    try:
        run(recorded(path, [], gpt(*program)), folder / "job.txt")
        check_native(RunFolder(path))
        return steps_of(out)
    finally:
        remove_run(path)
        shutil.rmtree(out)


def _blocks(steps: Sequence[Step], block_steps: int, dropped: int) -> dict[str, list[list[Step]]]:
    """Of each mode, in the order of the rounds."""
    blocks: dict[str, list[list[Step]]] = {mode: [] for mode in _WHAT}
    for start in range(0, len(steps), block_steps):
        blocks[steps[start].mode].append(list(steps[start + dropped : start + block_steps]))
    return blocks


def _means(blocks: Mapping[str, Sequence[Sequence[Step]]], value: Callable[[Step], float]) -> dict[str, list[float]]:
    """Milliseconds of each block, by what the table calls the mode."""
    return {_WHAT[mode]: [fmean(map(value, block)) * 1e3 for block in of] for mode, of in blocks.items()}


def _medians(blocks: Mapping[str, Sequence[Sequence[Step]]]) -> list[str]:
    typical = {mode: median(step.seconds for block in of for step in block) for mode, of in blocks.items()}
    return [f"{mode} {value / typical['bare']:.3f}" for mode, value in typical.items() if mode != "bare"]
