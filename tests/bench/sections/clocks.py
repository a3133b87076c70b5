"""What a read of a clock costs in a recorded program."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from prismdbg.jobs.storage.run_folder import RunFolder
from tests.bench.jobs import PROGRAMS, check_native, recorded, remove_run, run, torchrun
from tests.bench.settings import Settings
from tests.bench.table import Measured, Row

TITLE = "A read of a clock: what a recording adds"
_SAID = "said"
_JOBS: Mapping[str, Sequence[str] | None] = {"bare": None, "default": (), "window": ("--window", "all")}


def measure(settings: Settings, folder: Path) -> Measured:
    taken: dict[str, list[dict[str, float]]] = {name: [] for name in _JOBS}
    for number in range(settings.job_rounds):
        for name, options in list(_JOBS.items())[:: -1 if number % 2 else 1]:  # what drifts favours none
            taken[name].append(_job(folder, options))
    rows = [
        _row("bare", taken["bare"], "later"),
        _row("recorded, all defaults", taken["default"], "later"),
        _row("recorded, --window all: one that is kept", taken["window"], "first"),
        _row("recorded, --window all: one that is left out", taken["window"], "later"),
    ]
    return Measured(rows=rows, notes=["One rank, whose main thread reads `time.monotonic` in one line."])


def _job(folder: Path, options: Sequence[str] | None) -> dict[str, float]:
    path, job = folder / "run", torchrun(1, PROGRAMS / "hot_clocks.py", "--said", _SAID)
    try:
        said = run(job if options is None else recorded(path, options, job), folder / "job.txt")
        if options is not None:
            check_native(RunFolder(path))
    finally:
        remove_run(path)
    (line,) = (line for line in said.splitlines() if line.startswith(f"{_SAID} "))
    found: dict[str, float] = json.loads(line.removeprefix(_SAID))
    return found


def _row(what: str, taken: Sequence[Mapping[str, float]], reads: str) -> Row:
    return Row(what=what, values=[each[reads] for each in taken], unit="µs", digits=2)
