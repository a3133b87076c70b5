"""Folders of sweeps, made of values."""

from __future__ import annotations

import json
from pathlib import Path

from prismdbg.sweep.result import Result, State
from prismdbg.sweep.stored import keep_comparison

MIB = 1 << 20


def done(name: str, ms: int, peak_mib: int) -> Result:
    taken = tuple(1_000_000 * (ms + more) for more in (-1, 0, 1))
    return Result(
        name=name, values={}, state=State.DONE, mesh="dp=2", middle_ns=taken[1], iteration_ns=taken,
        peak_bytes=peak_mib * MIB, exposed={"dp": 0.25}, worth="all modelled",
    )  # fmt: skip


def keep(folder: Path, result: Result) -> None:
    """As one that has run."""
    own = folder / "trials" / result.name
    own.mkdir(parents=True, exist_ok=True)
    (own / "result.json").write_text(json.dumps(result.to_json()))


def make_sweep(folder: Path) -> Path:
    """Two that ran, one that failed, one that was left out, one that runs."""
    keep(folder, done("tp=1", 30, 100))
    keep(folder, done("tp=2", 20, 900))
    (folder / "sweep.json").write_text("{}")
    (folder / "trials" / "tp=16").mkdir()
    failed = Result(name="tp=4", values={}, state=State.FAILED, mesh="dp=1", why="rank 0 failed\x1b]0;taken\x07[bold]")
    left_out = Result(name="tp=8", values={}, state=State.LEFT_OUT, why="predicted 40 ms")
    keep_comparison(folder, [done("tp=1", 99, 9), failed, left_out], 500 * MIB)
    return folder
