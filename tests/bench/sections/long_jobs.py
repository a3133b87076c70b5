"""What the history of a long job costs whoever follows it, and whoever reads it."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from prismdbg.capsule.log_follower import LogFollower
from tests.bench.jobs import PROGRAMS, BenchError, prismdbg, run
from tests.bench.large_capsule import write_log
from tests.bench.settings import Settings
from tests.bench.table import Measured, Row

TITLE = "Long jobs: following a log, and reading one of a million collectives per rank"
RANKS = 2


def measure(settings: Settings, folder: Path) -> Measured:
    rows = [_returned(settings, folder)]
    for count in (settings.long_log // 10, settings.long_log):
        generated = folder / f"run-{count}"
        for rank in range(RANKS):
            log = generated / "ranks" / str(rank)
            log.mkdir(parents=True)
            write_log(log, count, np.random.default_rng(1), rank)
        rows += _read(generated, f"{RANKS} ranks, {count:,} collectives per rank", settings)
    rows.append(_followed(generated / "ranks" / "0", settings))
    return Measured(
        rows=rows, notes=["Seconds of processor time; logs are generated (`tests/bench/large_capsule.py`)."]
    )


def _returned(settings: Settings, folder: Path) -> Row:
    count, values = settings.long_log // 5, []
    for number in range(settings.cold_starts):
        job = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "1"]
        job += [str(PROGRAMS / "many_collectives.py"), str(count)]
        record = prismdbg("record", "-o", folder / f"returned-{number}", "--", *job)
        said = run(record, folder / "returned.txt")
        values.append(time.time() - float(said.partition("ended ")[2].split()[0]))
    return Row(what=f"`record` returns after the last of {count:,} all_reduces of one rank", values=values, unit="s")


def _read(generated: Path, what: str, settings: Settings) -> list[Row]:
    used = [_used(["why", str(generated)]) for _ in range(settings.replays)]
    return [
        Row(what=f"`why`, {what}", values=[seconds for seconds, _ in used], unit="s"),
        Row(what=f"`why`, {what}: memory", values=[mib for _, mib in used], unit="MiB", digits=0),
    ]


def _used(command: Sequence[str]) -> tuple[float, float]:
    """Seconds of processor time, and MiB at most."""
    process = subprocess.Popen(prismdbg(*command), stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode not in (0, 1):
        raise BenchError(f"prismdbg {' '.join(command)}: exit code {process.returncode}")
    return used.ru_utime + used.ru_stime, used.ru_maxrss / 1024


def _followed(log: Path, settings: Settings) -> Row:
    values = []
    for _ in range(settings.replays):
        began = time.process_time()
        LogFollower(log).poll()
        values.append((time.process_time() - began) / settings.long_log * 1e6)
    return Row(what="following a log, as `record` does: one collective", values=values, unit="us")
