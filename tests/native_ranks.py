"""Starts small real gloo jobs whose ranks record themselves with the native kernels, and reads their logs."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import warm_torch

from prismdbg.capsule.log.events import RankLog
from prismdbg.capsule.log.reader import read_log
from prismdbg.jobs.injection import cache_dir
from prismdbg.rank.native import build as native_build

JOBS = Path(__file__).parent / "integration" / "native_jobs"


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


def run_job(tmp_path: Path, script: str, world: int, *arguments: str, expect: tuple[int, ...] = ()) -> list[Ran]:
    """`native_jobs/<script>.py` once for each rank; logs and reports go to `<tmp_path>/<rank>`. Fails with what a rank
    printed where its exit code is not the one expected."""
    native_build.build(cache_dir())
    folders = [tmp_path / str(rank) for rank in range(world)]
    for folder in folders:
        folder.mkdir(exist_ok=True)
    lines = [(JOBS / f"{script}.py", tmp_path, rank, world, *arguments) for rank in range(world)]
    ended = zip(warm_torch.run(*lines), folders, strict=True)
    ran = [Ran(code, output, folder) for (code, output), folder in ended]
    for rank, (one, wanted) in enumerate(zip(ran, expect or (0,) * world, strict=True)):
        assert one.code == wanted, f"rank {rank} ended with {one.code}, not {wanted}:\n{one.output}"
    return ran
