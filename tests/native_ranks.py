"""Starts small real gloo jobs whose ranks record themselves with the native kernels, and reads their logs."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from prismdbg.capsule.log.events import RankLog
from prismdbg.capsule.log.reader import read_log
from prismdbg.jobs.injection import cache_dir
from prismdbg.rank.native import build as native_build

JOBS = Path(__file__).parent / "integration" / "native_jobs"
BOUND_S = 120


class Spawn(Protocol):
    def __call__(self, *command: str, **options: object) -> subprocess.Popen[str]: ...


@dataclass(frozen=True, slots=True)
class Ran:
    """One rank that ran to its end: exit code, what it printed, where its log lies, what it reported."""

    code: int
    output: str
    folder: Path

    def log(self) -> RankLog:
        return read_log(self.folder)

    def report(self) -> Any:
        return json.loads((self.folder / "report.json").read_text())


def start_job(spawn: Spawn, tmp_path: Path, script: str, world: int, *arguments: str) -> list[subprocess.Popen[str]]:
    """`native_jobs/<script>.py` once for each rank; logs and reports go to `<tmp_path>/<rank>`."""
    native_build.build(cache_dir())
    processes = []
    for rank in range(world):
        (tmp_path / str(rank)).mkdir(exist_ok=True)
        command = (sys.executable, str(JOBS / f"{script}.py"), str(tmp_path), str(rank), str(world), *arguments)
        processes.append(spawn(*command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT))
    return processes


def finish_job(processes: list[subprocess.Popen[str]], tmp_path: Path, expect: tuple[int, ...] = ()) -> list[Ran]:
    """Waits for every rank. Fails with what a rank printed where its exit code is not the one expected."""
    ran = []
    for rank, process in enumerate(processes):
        output, _ = process.communicate(timeout=BOUND_S)
        ran.append(Ran(process.returncode, output, tmp_path / str(rank)))
    for rank, one in enumerate(ran):
        wanted = expect[rank] if expect else 0
        assert one.code == wanted, f"rank {rank} ended with {one.code}, not {wanted}:\n{one.output}"
    return ran


def run_job(spawn: Spawn, tmp_path: Path, script: str, world: int, *arguments: str) -> list[Ran]:
    return finish_job(start_job(spawn, tmp_path, script, world, *arguments), tmp_path)
