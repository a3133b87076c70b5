"""Step time of a recorded job against the same job bare: in turn inside one pair of processes."""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean, median

from prismdbg.jobs.storage.run_folder import RunFolder
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
_FILLS = "window 8"
_PAYLOAD_MIB, _PAYLOAD_ROUNDS = 26, 12  # a step of the 6 M parameter model receives about as much
_GOALS = {"recorded": DEFAULT_GOAL, "window 1": WINDOW_GOAL, "window 8": WINDOW_GOAL}


def measure(settings: Settings, folder: Path) -> Measured:
    steps = _train(settings, folder)
    blocks = _blocks(steps, settings.block_steps, settings.dropped_steps)
    goals = {_WHAT[mode]: goal for mode, goal in _GOALS.items()}
    rows = against_bare(_means(blocks, lambda step: step.seconds), goals)
    filling = {_WHAT["bare"]: blocks["bare"], f"{_WHAT[_FILLS]}, while it fills": _filling(steps, settings.block_steps)}
    rows += against_bare({what: _means_of(of, lambda step: step.seconds) for what, of in filling.items()}, {})[1:]
    cpu = against_bare(_means(blocks, lambda step: step.cpu_s), {})
    rows += [replace(row, what=f"processor time: {row.what}") for row in cpu]
    kept = settings.block_steps - settings.dropped_steps
    notes = [
        f"GPT {settings.size}, batch {settings.batch}, DDP over gloo, 2 ranks, 1 thread each. A value is the mean of "
        f"{kept} steps of a block (the first {settings.dropped_steps} after a switch do not count), so that what "
        "happens every few steps, such as a new payload segment, is in it. The record's injection and supervisor are "
        "there in every mode: section 'whole jobs' holds those too.",
        "A window costs more while it fills, once: its files and their memory are new. On a virtual machine memory "
        "that was not in use is dear, for the host has to give it first: " + _fresh_memory(folder) + " Once the window "
        "is full its oldest file is written over.",
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
    """Of each mode, in the order of the rounds; without the steps in which a window fills."""
    blocks: dict[str, list[list[Step]]] = {mode: [] for mode in _WHAT}
    for block in _runs(steps, block_steps):
        blocks[block[0].mode].append(block[window_of(block[0].mode) + dropped :])
    return blocks


def _filling(steps: Sequence[Step], block_steps: int) -> list[list[Step]]:
    """The steps of each block in which the large window fills; not the first, which changes the mode."""
    return [block[1 : window_of(_FILLS)] for block in _runs(steps, block_steps) if block[0].mode == _FILLS]


def _runs(steps: Sequence[Step], block_steps: int) -> Iterator[list[Step]]:
    start = 0
    while start < len(steps):
        end = start + block_steps + window_of(steps[start].mode)
        yield list(steps[start:end])
        start = end


def window_of(mode: str) -> int:
    """As the program has it: a block of a mode with a window is longer by the window."""
    return int(mode.rpartition(" ")[2]) if mode.startswith("window") else 0


def _fresh_memory(folder: Path) -> str:
    """How long it takes to write a step's payload to a new file, and to one that was written before."""
    data = memoryview(bytearray(os.urandom(1 << 20) * _PAYLOAD_MIB))
    new, again = [], []
    with contextlib.ExitStack() as held:
        for number in range(_PAYLOAD_ROUNDS):
            descriptor = os.open(folder / f"payload.{number}", os.O_WRONLY | os.O_CREAT, 0o600)
            held.callback(os.close, descriptor)
            for taken in (new, again):
                began = time.process_time()
                os.pwrite(descriptor, data, 0)
                taken.append((time.process_time() - began) * 1e3)
    return (
        f"writing {_PAYLOAD_MIB} MiB takes {_spread(new)} of processor time into a new file, {_spread(again)} into one "
        "that is there."
    )


def _spread(values: Sequence[float]) -> str:
    return f"{median(values):.0f} ms ({min(values):.0f}..{max(values):.0f})"


def _means(blocks: Mapping[str, Sequence[Sequence[Step]]], value: Callable[[Step], float]) -> dict[str, list[float]]:
    """Milliseconds of each block, by what the table calls the mode."""
    return {_WHAT[mode]: _means_of(of, value) for mode, of in blocks.items()}


def _means_of(blocks: Sequence[Sequence[Step]], value: Callable[[Step], float]) -> list[float]:
    return [fmean(map(value, block)) * 1e3 for block in blocks]


def _medians(blocks: Mapping[str, Sequence[Sequence[Step]]]) -> list[str]:
    typical = {mode: median(step.seconds for block in of for step in block) for mode, of in blocks.items()}
    return [f"{mode} {value / typical['bare']:.3f}" for mode, value in typical.items() if mode != "bare"]
