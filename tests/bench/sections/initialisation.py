"""What initialisation takes one rank of 8,192: torch.distributed, a mesh, and groups as Megatron makes them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from tests.bench.jobs import ROOT, BenchError, prismdbg
from tests.bench.settings import Settings
from tests.bench.table import Measured, Row

TITLE = "Initialisation of an emulated rank"
PROGRAM = ROOT / "tests" / "integration" / "programs" / "emulated_init.py"
GOAL_S, GOAL_MB = 10.0, 500.0
MEGABYTE = 10**6
BOUND_S = 600.0
WORLDS = (8192, 65536)
JUDGED = 8192


def measure(settings: Settings, folder: Path) -> Measured:
    rows = [row for world in WORLDS for row in _rows(world, folder, settings.replays)]
    return Measured(
        rows=rows,
        notes=[
            "pp=16, tp=8, dp is the rest. The rank makes a mesh of all ranks and each tp and dp group of the job, "
            "as Megatron does, then a barrier. Memory is what the process has resident at the end, over that of the "
            "same program in a world of one rank. The time of Python's and torch's own start is not in it.",
        ],
    )


def _rows(world: int, folder: Path, repeats: int) -> list[Row]:
    seconds, more, mesh = [], [], f"pp=16,dp={world // 128},tp=8"
    for number in range(repeats):
        large = _said(folder / f"{world}-{number}", "--world", world, "--mesh", mesh, "--ranks", world // 2 + 1)
        alone = _said(folder / f"{world}-alone-{number}", "--world", 1, "--mesh", "tp=1")
        seconds.append(large["seconds"])
        more.append((large["total"] - alone["total"]) / MEGABYTE)
    title, is_judged = f"{world:,} ranks: one rank's init", world == JUDGED
    return [
        Row(what=title, values=seconds, unit="s", goal=GOAL_S if is_judged else None, digits=2),
        Row(what=f"{title}, memory over a world of 1", values=more, unit="MB", goal=GOAL_MB if is_judged else None),
    ]


def _said(output: Path, *options: object) -> dict[str, float]:
    words = prismdbg("emulate", "-v", "-o", output, *options, "--", sys.executable, PROGRAM)
    done = subprocess.run(words, capture_output=True, text=True, timeout=BOUND_S, check=False)
    if done.returncode:
        raise BenchError(f"{' '.join(words)}: exit code {done.returncode}\n{done.stderr[-2000:]}")
    found: dict[str, float] = json.loads(done.stdout.splitlines()[0])  # then what the emulation is worth
    return found
