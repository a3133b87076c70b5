"""What one call costs, hot, and which part of it costs what."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from statistics import median

from tests.bench.jobs import PROGRAMS, run
from tests.bench.settings import Settings
from tests.bench.spread import ratios
from tests.bench.table import Measured, Row

TITLE = "One call, hot: what a kernel adds (fake backend, nothing is sent)"
_KIB = 1024
# (bytes, calls of a block)
_SIZES = ((_KIB, 2000), (1 << 20, 100), (25 << 20, 4))


def measure(settings: Settings, folder: Path) -> Measured:
    rows: list[Row] = []
    notes: list[str] = []
    for size, calls in _SIZES:
        taken, speeds = _run(folder, settings, "--bytes", size, "--calls", calls)
        rows += _rows(f"native, {_name(size)}", taken)
    rates = " GB/s, ".join(f"{name} {median(values):.1f}" for name, values in speeds.items())
    notes.append(f"Throughput over 26 MB on one thread: {rates} GB/s (the fingerprint with the NaN check).")
    whole, _ = _run(folder, settings)
    for part in ("stacks", "fingerprints", "nan_check"):
        taken, _ = _run(folder, settings, "--without", part)
        saved = median(whole["recorded"]) - median(taken["recorded"])
        notes.append(f"Of a native record of 1 KiB, {part.replace('_', ' ')}: about {saved:.2f} µs.")
    notes += [_of_sketches(settings, folder, size, calls) for size, calls in _SIZES[:2]]
    taken, _ = _run(folder, settings, "--kind", "python", "--calls", 300)
    rows += _rows("Python, 1 KiB", taken)
    return Measured(rows=rows, notes=notes)


def _run(folder: Path, settings: Settings, *arguments: object) -> tuple[dict[str, list[float]], dict[str, list[float]]]:
    command = [sys.executable, str(PROGRAMS / "hot_calls.py"), "--rounds", str(settings.call_rounds)]
    lines = run([*command, *map(str, arguments)], folder / "calls.txt").splitlines()
    taken, speeds = (json.loads(line) for line in lines if line.startswith("{"))
    return taken, speeds


def _of_sketches(settings: Settings, folder: Path, size: int, calls: int) -> str:
    options = ("--bytes", size, "--calls", calls, "--cpu")
    without, _ = _run(folder, settings, *options)
    sketched, _ = _run(folder, settings, *options, "--sketches")
    more = median(sketched["recorded"]) - median(without["recorded"])
    return f"--sketches adds to a native record of {_name(size)}: about {more:.2f} µs of CPU time."


def _rows(name: str, taken: dict[str, list[float]]) -> list[Row]:
    bare = taken["bare"]
    rows = [Row(what=f"{name}: bare", values=bare, unit="µs", digits=2)]
    for mode in ("off", "recorded", "window"):
        against = f"bare, {median(taken[mode]) - median(bare):+.2f} µs"
        rows.append(
            Row(
                what=f"{name}: {mode}",
                against=against,
                values=taken[mode],
                unit="µs",
                ratios=ratios(taken[mode], bare),
                digits=2,
            )
        )
    return rows


def _name(size: int) -> str:
    return f"{size >> 20} MiB" if size >= 1 << 20 else f"{size >> 10} KiB"
