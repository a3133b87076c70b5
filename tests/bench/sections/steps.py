"""Step time of a recorded job against the same job bare: in turn inside one pair of processes."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean, median

from prismdbg.workflows.run_folder import RunFolder
from tests.bench.jobs import check_native, gpt, recorded, remove_run, run, steps_of
from tests.bench.settings import Settings
from tests.bench.spread import ratios
from tests.bench.table import Measured, Row

TITLE = "Step time, modes in turn in the same processes"
DEFAULT_GOAL, WINDOW_GOAL = 1.02, 1.10
_WHAT = {
    "bare again": ("bare again (the noise)", None),
    "off": ("kernels in place, recording off", None),
    "recorded": ("recorded, all defaults", DEFAULT_GOAL),
    "window 1": ("recorded, --window 1, NaN trigger", WINDOW_GOAL),
    "window 8": ("recorded, --window 8, NaN trigger", WINDOW_GOAL),
}


def measure(settings: Settings, folder: Path) -> Measured:
    steps = _train(settings, folder)
    blocks = _blocks(steps, settings.block_steps)
    means = {mode: [fmean(block[settings.dropped_steps :]) * 1e3 for block in of] for mode, of in blocks.items()}
    rows = [Row(what="bare", values=means["bare"], unit="ms")]
    for mode, (what, goal) in _WHAT.items():
        rows.append(
            Row(
                what=what,
                against="bare",
                values=means[mode],
                unit="ms",
                ratios=ratios(means[mode], means["bare"]),
                goal=goal,
            )
        )
    kept = settings.block_steps - settings.dropped_steps
    notes = [
        f"GPT {settings.size}, batch {settings.batch}, DDP over gloo, 2 ranks, 1 thread each. A value is the mean of "
        f"{kept} steps of a block (the first {settings.dropped_steps} after a switch do not count), so that what "
        "happens every few steps, such as a new payload segment, is in it. The record's injection and supervisor are "
        "there in every mode: section 'whole jobs' holds those too.",
        "Ratios of the median single step: " + ", ".join(_medians(blocks, settings.dropped_steps)) + ".",
    ]
    return Measured(rows=rows, notes=notes)


def _train(settings: Settings, folder: Path) -> list[tuple[str, float]]:
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


def _blocks(steps: Sequence[tuple[str, float]], block_steps: int) -> dict[str, list[list[float]]]:
    """Of each mode, in the order of the rounds."""
    blocks: dict[str, list[list[float]]] = {}
    for start in range(0, len(steps), block_steps):
        block = steps[start : start + block_steps]
        blocks.setdefault(block[0][0], []).append([seconds for _, seconds in block])
    return blocks


def _medians(blocks: Mapping[str, Sequence[Sequence[float]]], dropped: int) -> list[str]:
    typical = {mode: median(s for block in of for s in block[dropped:]) for mode, of in blocks.items()}
    return [f"{mode} {typical[mode] / typical['bare']:.3f}" for mode in _WHAT]
