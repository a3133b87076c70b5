"""Programs that seed nothing, replayed from their start: how many of the replays are identical."""

from __future__ import annotations

import json
import subprocess
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

from prismdbg.jobs.storage.run_folder import RunFolder
from tests.bench.jobs import ROOT, BenchError, check_native, environment, prismdbg, recorded, remove_run, run, torchrun
from tests.bench.settings import Settings
from tests.bench.table import Measured, Row

TITLE = "Unseeded programs, replayed from their start"
PROGRAMS = ROOT / "tests" / "integration" / "programs"
JOBS: Mapping[str, tuple[str, int]] = {
    "tensor parallel, DTensor": ("unseeded_parallel.py", 2),
    "FSDP2, meta device, bfloat16": ("unseeded_shards.py", 2),
    "tensor and sequence parallel with FSDP2": ("unseeded_blocks.py", 4),
}
BOUND_S = 300.0


def measure(settings: Settings, folder: Path) -> Measured:
    rows = []
    for what, (program, ranks) in JOBS.items():
        outcomes: Counter[str] = Counter()
        compared: list[float] = []
        for number in range(settings.unseeded_jobs):
            for outcome, collectives in _replays(folder / f"{program}-{number}", program, ranks):
                outcomes[outcome] += 1
                compared.append(collectives)
        total = outcomes.total()
        said = ", ".join(f"{count} {outcome}" for outcome, count in sorted(outcomes.items()))
        other = 100 * (total - outcomes["identical"]) / total
        rows.append(Row(what=f"{what}: not identical, of {total} replays ({said})", values=[other], unit="%", goal=0.0))
        rows.append(Row(what=f"{what}: collectives compared in a replay", values=compared, unit="", digits=0))
    note = (
        f"`{PROGRAMS.relative_to(ROOT)}/unseeded_*.py` on gloo: none sets a seed. {settings.unseeded_jobs} jobs each, "
        "recorded with --window all; of each job every rank is captured with --origin start and replayed."
    )
    return Measured(rows=rows, notes=[note])


def _replays(folder: Path, program: str, ranks: int) -> Iterator[tuple[str, int]]:
    """Outcome and number of compared collectives, of every rank of one job."""
    folder.mkdir()
    path = folder / "run"
    try:
        run(recorded(path, ["--window", "all"], torchrun(ranks, PROGRAMS / program)), folder / "job.txt", BOUND_S)
        check_native(RunFolder(path))
        for rank in range(ranks):
            capsule = folder / f"rank-{rank}"
            line = prismdbg("capture", path, "--rank", rank, "--origin", "start", "-o", capsule)
            run(line, folder / "capture.txt", BOUND_S)
            yield _replay(capsule)
    finally:
        remove_run(path)


def _replay(capsule: Path) -> tuple[str, int]:
    line = prismdbg("replay", capsule, "--runtime", "local", "--json")
    done = subprocess.run(line, env=environment(), capture_output=True, text=True, timeout=BOUND_S, check=False)
    try:
        verdict = json.loads(done.stdout)
    except json.JSONDecodeError:
        raise BenchError(f"{capsule.name} was not replayed:\n{done.stderr[-2000:]}") from None
    return str(verdict["outcome"]), int(verdict["tally"].get("compared", 0))
