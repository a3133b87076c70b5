"""Peak memory of every rank of real jobs, against another real run and against each rank emulated alone."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from prismdbg.capsule.log.reader import read_log
from prismdbg.capsule.memory_format import Kind
from prismdbg.jobs.storage.run_folder import RunFolder
from prismdbg.memory.backend import modelled
from prismdbg.memory.peak import peak
from prismdbg.memory.trace import MemoryTrace, open_trace
from prismdbg.settings.rank_config import RANK_MEMORY
from tests.bench.jobs import ROOT, BenchError, check_native, prismdbg, remove_run, run
from tests.bench.settings import Settings
from tests.bench.table import Measured, Row

TITLE = "Memory of an emulated rank"
KIBIBYTE = 1024
_GPT = ROOT / "examples" / "gpt"
_PIPELINE = ROOT / "tests" / "integration" / "programs" / "gpt_pipeline.py"


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    name: str
    ranks: int
    mesh: str
    program: Sequence[object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Peaks:
    """Of one rank, in bytes: the program's own; the backend's at once, and all that it allocated."""

    program: int
    backend: int
    backend_all: int


def measure(settings: Settings, folder: Path) -> Measured:
    rows: list[Row] = []
    notes = []
    for job in _jobs(settings):
        first, second = (_real(job, folder / f"real-{n}") for n in (1, 2))
        emulated = _emulated(job, folder / "run")
        rows += _rows(job, first, second, emulated)
        notes.append(f"{job.name}: rank by rank, KiB: {_by_rank(first, emulated)}.")
    notes.append(
        "Program: blocks of torch's CPU allocator that the program made, counted by the tracer. Backend: what gloo "
        "makes through the same allocator; an emulated rank has none, so it is modelled from its collectives. What "
        "real runs have at once depends on how far gloo's threads are: compare it with the other real run."
    )
    return Measured(rows=rows, notes=notes)


def _jobs(settings: Settings) -> list[Job]:
    size = "tiny" if settings.rounds <= 5 else "1m"
    gpt = ("--size", size, "--steps", 3, "--log-every", 1)
    jobs = []
    for ranks in (4, 8):
        jobs += [
            Job(name=f"DDP, {ranks} ranks", ranks=ranks, mesh=f"dp={ranks}", program=(_GPT / "train_ddp.py", *gpt)),
            Job(
                name=f"FSDP2 x TP 2, {ranks} ranks",
                ranks=ranks,
                mesh=f"dp={ranks // 2},tp=2",
                program=(_GPT / "train_fsdp_tp.py", *gpt, "--tp", 2),
            ),
            Job(name=f"pipeline 1F1B, {ranks} ranks", ranks=ranks, mesh=f"pp={ranks}", program=(_PIPELINE, 3, ranks)),
        ]
    return jobs


def _real(job: Job, path: Path) -> list[Peaks]:
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(job.ranks)]
    command = [*launcher, *map(str, job.program)]
    try:
        run(prismdbg("record", "-o", path, "--memory", "--trigger", "none", "--", *command), path.with_suffix(".txt"))
        check_native(RunFolder(path))
        return [_peaks(RunFolder(path), rank) for rank in range(job.ranks)]
    finally:
        remove_run(path)


def _emulated(job: Job, path: Path) -> list[Peaks]:
    """Every rank, each alone."""
    options = ["--world", job.ranks, "--mesh", job.mesh, "--ranks", f"0-{job.ranks - 1}", "--memory"]
    command = prismdbg("emulate", "-o", path, *options, "--", sys.executable, *job.program)
    try:
        run(command, path.with_suffix(".txt"))
        return [_peaks(RunFolder(path), rank) for rank in range(job.ranks)]
    finally:
        remove_run(path)


def _peaks(run_folder: RunFolder, rank: int) -> Peaks:
    folder = run_folder.latest(rank)
    trace = open_trace(folder / RANK_MEMORY)
    found = peak(trace)
    if found is None:
        raise BenchError(f"rank {rank} has an empty memory trace")
    log = read_log(folder)
    if any(record.synthesized for record in log.collectives):
        model = modelled(log.collectives, log.groups, rank)
        return Peaks(program=found.size_bytes, backend=model.at_once_bytes, backend_all=model.all_bytes)
    at_once = int(trace.backend_bytes.max(initial=0))
    return Peaks(program=found.size_bytes, backend=at_once, backend_all=_backend_all(trace))


def _backend_all(trace: MemoryTrace) -> int:
    return int(np.sum(trace.size_bytes[trace.is_backend & (trace.kind == Kind.ALLOCATION)]))


def _rows(job: Job, first: list[Peaks], second: list[Peaks], emulated: list[Peaks]) -> list[Row]:
    def apart(a: list[Peaks], b: list[Peaks]) -> list[float]:
        return [abs(one.program - other.program) for one, other in zip(a, b, strict=True)]

    def signed(a: list[Peaks], name: str) -> list[float]:
        pairs = zip(a, first, strict=True)
        return [100.0 * (getattr(x, name) - getattr(y, name)) / max(getattr(y, name), 1) for x, y in pairs]

    rows = [
        Row(what=f"{job.name}: {what}", against="real", values=[max(values)], unit="B", digits=0, goal=0.0)
        for what, values in (
            ("program, real again, most apart", apart(second, first)),
            ("program, emulated, most apart", apart(emulated, first)),
        )
    ]
    if any(one.backend_all for one in first):
        for what, found in (("real again", second), ("emulated, modelled", emulated)):
            for name, title in (("backend_all", "all it staged"), ("backend", "most at once")):
                values = signed(found, name)
                rows.append(Row(what=f"{job.name}: backend, {title}, {what}", against="real", values=values, unit="%"))
    return rows


def _by_rank(real: list[Peaks], emulated: list[Peaks]) -> str:
    def cell(one: Peaks, other: Peaks) -> str:
        sizes = [f"{size / KIBIBYTE:.0f}" for size in (one.program, other.program, one.backend, other.backend)]
        return f"{sizes[0]} = {sizes[1]} (backend {sizes[2]}, modelled {sizes[3]})"

    return ", ".join(cell(*both) for both in zip(real, emulated, strict=True))
