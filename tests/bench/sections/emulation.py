"""8,192 ranks end to end from the example's script: each command, then 65,536 ranks."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from tests.bench.jobs import ROOT, BenchError, prismdbg, started
from tests.bench.settings import Settings
from tests.bench.table import Measured, Row

TITLE = "8,192 ranks of a GPT, end to end"
EXAMPLE = ROOT / "examples" / "emulation"
GRAPH_GOAL_MB = 100.0
MEGABYTE = 10**6
BOUND_S = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """`sizes`: of the mesh; program: the arguments that go with it. dp: what it is stretched to."""

    pp: int
    dp: int
    tp: int
    dp_stretched: int
    program: tuple[str, ...]

    @property
    def world(self) -> int:
        return self.pp * self.dp * self.tp

    @property
    def where(self) -> tuple[object, ...]:
        return "--world", self.world, "--mesh", f"pp={self.pp},dp={self.dp},tp={self.tp}"


LARGE = Job(pp=16, dp=64, tp=8, dp_stretched=512, program=("--microbatches", "32", "--batch", "32"))
SMALL = Job(pp=2, dp=2, tp=2, dp_stretched=8, program=("--microbatches", "4", "--batch", "4"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """`peak_bytes`: memory of the command and all below it, at once; shared pages counted once."""

    seconds: float
    peak_bytes: int


def measure(settings: Settings, folder: Path) -> Measured:
    job = LARGE if settings.rounds > 5 else SMALL
    run = folder / "run"
    program = [sys.executable, str(EXAMPLE / "train.py"), "--pp", job.pp, "--tp", job.tp, *job.program]
    cluster = ("--cluster", EXAMPLE / "cluster.yaml")
    wide = run / "wide.npz"
    rows: list[Row] = []
    stages: list[tuple[str, Sequence[object]]] = [
        ("plan, with the rank that it tries", ("plan", *job.where, "--classes", "--", *program)),
        ("emulate --classes", ("emulate", "-o", run, *job.where, "--classes", "--", *program)),
        ("graph build", ("graph", "build", run)),
        ("graph simulate", ("graph", "simulate", run, *cluster)),
        ("graph critical-path", ("graph", "critical-path", run, *cluster)),
        ("graph what-if, a slow rank", ("graph", "what-if", run, *cluster, "--slow-rank", f"{job.world // 2}=1.3")),
    ]
    rows += [row for what, words in stages for row in _stage(f"{job.world:,} ranks: {what}", words, folder)]
    stretched: list[tuple[str, Sequence[object]]] = [
        ("graph build --stretch", ("graph", "build", run, "--stretch", f"dp={job.dp_stretched}", "-o", wide)),
        ("graph simulate", ("graph", "simulate", wide, *cluster)),
        ("graph critical-path", ("graph", "critical-path", wide, *cluster)),
    ]
    world = job.pp * job.dp_stretched * job.tp
    rows += [row for what, words in stretched for row in _stage(f"{world:,} ranks: {what}", words, folder)]
    rows += _storage(job, run, wide)
    found = json.loads((run / "classes.json").read_text())
    return Measured(
        rows=rows,
        notes=[
            f"{len(found['ran'])} of {job.world:,} ranks really ran, for {len(found['classes'])} classes. Memory is "
            "that of all processes of a command at once; the stages of the pipeline stand together: each needs what "
            "its neighbours send at the start. Each command is measured from its start to its end.",
            "The larger world is made of the same logs: nothing ran again.",
        ],
    )


def _stage(title: str, words: Sequence[object], folder: Path) -> list[Row]:
    taken = _watched(prismdbg(*words), folder / "output.txt")
    return [
        Row(what=title, values=[taken.seconds], unit="s"),
        Row(what=f"{title}, memory", values=[taken.peak_bytes / MEGABYTE], unit="MB"),
    ]


def _watched(command: Sequence[str], output: Path) -> Taken:
    """Looks at the processes as often as looking takes."""
    begun, peak_bytes = time.perf_counter(), 0
    with started(command, output) as process:
        while process.poll() is None:
            peak_bytes = max(peak_bytes, _held_bytes(process.pid))
            if time.perf_counter() - begun > BOUND_S:
                raise BenchError(f"{' '.join(command)}: did not end within {BOUND_S:g} s")
            time.sleep(0.2)
        seconds = time.perf_counter() - begun
    if process.returncode:
        raise BenchError(f"{' '.join(command)}: exit code {process.returncode}\n{output.read_text()[-2000:]}")
    return Taken(seconds=seconds, peak_bytes=peak_bytes)


def _held_bytes(pid: int) -> int:
    held = 0
    try:
        for process in (psutil.Process(pid), *psutil.Process(pid).children(recursive=True)):
            held += process.memory_full_info().pss
    except psutil.Error:  # one ended while it was looked at
        return held
    return held


def _storage(job: Job, run: Path, wide: Path) -> list[Row]:
    sizes = {
        f"{job.world:,} ranks: logs": _size(run / "ranks"),
        f"{job.world:,} ranks: values kept for peers": _size(run / "donors"),
        f"{job.world:,} ranks: the graph": (run / "graph.npz").stat().st_size,
        f"{job.pp * job.dp_stretched * job.tp:,} ranks: the graph": wide.stat().st_size,
    }
    goals = {name: GRAPH_GOAL_MB for name in sizes if name.endswith("graph")}
    return [
        Row(what=name, values=[size / MEGABYTE], unit="MB", goal=goals.get(name), digits=2)
        for name, size in sizes.items()
    ]


def _size(folder: Path) -> int:
    """On the disk."""
    return sum(path.stat().st_blocks * 512 for path in folder.rglob("*") if path.is_file())
