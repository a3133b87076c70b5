"""How long the capture of a rank takes after a long job, against one after a short job."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.bench.jobs import JOB_BOUND_S, PROGRAMS, prismdbg, remove_run, run, started, torchrun, wait_for
from tests.bench.long_run import PER_STEP
from tests.bench.settings import Settings
from tests.bench.table import Measured, Row

TITLE = "Captures of a rank after a long job"
FEW = 10_000  # collectives of a young job


def measure(settings: Settings, folder: Path) -> Measured:
    many = settings.long_log // PER_STEP * PER_STEP
    with _waiting(folder / "old", many) as old, _waiting(folder / "young", FEW) as young:
        _capture_s(old), _capture_s(young)  # what is loaded from the disk then stays in memory
        pairs = [(_capture_s(old), _capture_s(young)) for _ in range(settings.captures)]
    return Measured(
        rows=[
            Row(
                what=f"`capture` of a live rank after {many:,} collectives",
                against=f"after {FEW:,}",
                values=[after for after, _ in pairs],
                ratios=[after / before for after, before in pairs],
                unit="s",
                digits=2,
                goal=1.1,
            )
        ],
        notes=[
            "Two jobs of one rank, which issues as fast as it can, then 200 collectives every 0.2 s, in which it is "
            "captured. Wall times of the whole command, with park and dump, in turns. The goal is for "
            "`--collectives 10000000`."
        ],
    )


@contextmanager
def _waiting(path: Path, count: int) -> Iterator[Path]:
    """The RUN of a job that has issued so many collectives, and goes on slowly."""
    output = path.with_suffix(".txt")
    try:
        with started(prismdbg("record", "-o", path, "--", *torchrun(1, PROGRAMS / "long_job.py", count)), output):
            wait_for(lambda: f"at {count}\n" in output.read_text(), JOB_BOUND_S, f"{count:,} collectives")
            yield path
    finally:
        remove_run(path)


def _capture_s(path: Path) -> float:
    capsule = path.with_name(f"{path.name}-capsule")
    began = time.monotonic()
    run(prismdbg("capture", path, "--rank", 0, "--window", 1, "-o", capsule), capsule.with_suffix(".txt"))
    took_s = time.monotonic() - began
    shutil.rmtree(capsule)
    return took_s
