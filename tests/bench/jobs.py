"""Two-rank jobs on this machine, bare or recorded, as a user starts them. None outlives its `with`."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import TypeVar

import psutil

from prismdbg.jobs.storage.run_folder import RunFolder, read_json
from prismdbg.settings.rank_config import RankConfig

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = Path(__file__).parent / "programs"
RANKS = 2
JOB_BOUND_S = 3600.0
READY_BOUND_S = 180.0
_SAID = re.compile(r"^rank (\d+) step (\d+) seconds ([0-9.]+)$", re.MULTILINE)

T = TypeVar("T")


class BenchError(Exception):
    """A measured thing did not happen as it must; the numbers would say nothing."""


def prismdbg(*arguments: object) -> list[str]:
    return [sys.executable, "-c", "from prismdbg.cli.main import main; main()", *map(str, arguments)]


def gpt(*arguments: object) -> list[str]:
    return torchrun(RANKS, PROGRAMS / "gpt_steps.py", *arguments)


def torchrun(ranks: int, program: Path, *arguments: object) -> list[str]:
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)]
    return [*launcher, str(program), *map(str, arguments)]


def recorded(run: Path, options: Sequence[object], job: Sequence[str]) -> list[str]:
    return prismdbg("record", "-o", run, *options, "--", *job)


def environment() -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PRISMDBG_CONFIG"))}
    paths = f"{ROOT / 'examples' / 'gpt'}{os.pathsep}{ROOT}"
    return {**kept, "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1", "PYTHONPATH": paths}


def wait_for(condition: Callable[[], T], bound_s: float, what: str) -> T:
    """The first true value."""
    end = time.monotonic() + bound_s
    while not (value := condition()):
        if time.monotonic() > end:
            raise BenchError(f"waited {bound_s:g} s for {what}")
        time.sleep(0.02)
    return value


@contextmanager
def started(command: Sequence[str], output: Path) -> Iterator[subprocess.Popen[bytes]]:
    """The process, in a session of its own; at the end it is asked to end and then killed, with all below it."""
    with output.open("wb") as sink:
        process = subprocess.Popen(
            command,
            env=environment(),
            stdin=subprocess.DEVNULL,
            stdout=sink,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        yield process
    finally:
        _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    family = []
    if process.poll() is None:
        family = psutil.Process(process.pid).children(recursive=True)
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(40)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(20)
    for child in family:
        try:
            child.kill()
        except psutil.NoSuchProcess:
            continue
    psutil.wait_procs(family, timeout=20)


def run(command: Sequence[str], output: Path, bound_s: float = JOB_BOUND_S) -> str:
    """To its end; what it printed. `BenchError` when it fails."""
    with started(command, output) as process:
        try:
            code = process.wait(bound_s)
        except subprocess.TimeoutExpired:
            code = -1
    said = output.read_text(errors="replace")
    if code != 0:
        raise BenchError(f"{' '.join(command)}: exit code {code}\n{said[-2000:]}")
    return said


def check_native(run_folder: RunFolder) -> None:
    """Without the extension a job is still recorded, and would be measured as if it were the fast path."""
    for folder in run_folder.rank_folders():
        kind = read_json(folder / "rank.json").get("recorder")
        if kind != "native":
            raise BenchError(f"rank {folder.name} was recorded by the {kind} recorder: run `prismdbg setup` first")


def remove_run(path: Path) -> None:
    config = path / "config.json"
    if config.exists():
        shutil.rmtree(RankConfig.load(config).socket_dir, ignore_errors=True)
    shutil.rmtree(path, ignore_errors=True)


@dataclass(frozen=True, slots=True)
class Step:
    """The mean over the ranks; `cpu_s` is processor time, of all threads of a rank."""

    mode: str
    seconds: float
    cpu_s: float


def steps_of(out: Path) -> list[Step]:
    ranks = [json.loads((out / f"{rank}.json").read_text()) for rank in range(RANKS)]
    return [
        Step(steps[0][0], mean(step[1] for step in steps), mean(step[2] for step in steps))
        for steps in zip(*ranks, strict=True)
    ]


def said_seconds(text: str, rank: int) -> dict[int, float]:
    """Seconds of each step that a job started with `--say` printed."""
    return {int(step): float(seconds) for who, step, seconds in _SAID.findall(text) if int(who) == rank}


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveJob:
    """A recorded job that trains until its `with` ends."""

    run: RunFolder
    output: Path

    def steps(self, rank: int = 0) -> dict[int, float]:
        return said_seconds(self.output.read_text(errors="replace"), rank)

    def train(self, steps: int) -> None:
        """Until that many more steps are done."""
        target = len(self.steps()) + steps
        wait_for(lambda: len(self.steps()) >= target, READY_BOUND_S, f"{steps} steps of the job")

    def pid(self, rank: int) -> int:
        return int(read_json(self.run.latest(rank) / "rank.json")["pid"])


@contextmanager
def live_job(folder: Path, *arguments: object, options: Sequence[object] = ()) -> Iterator[LiveJob]:
    """Recorded, past its first steps."""
    path, output = folder / "run", folder / "live.txt"
    try:
        with started(recorded(path, options, gpt("--say", *arguments)), output) as process:
            job = LiveJob(run=RunFolder(path), output=output)

            def trains() -> bool:
                if process.poll() is not None:
                    raise BenchError(f"the job ended:\n{output.read_text(errors='replace')[-2000:]}")
                return len(job.steps()) >= 5

            wait_for(trains, READY_BOUND_S, "the job to train")
            check_native(job.run)
            yield job
    finally:
        remove_run(path)
