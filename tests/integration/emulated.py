"""Ranks emulated as a user does it, and the same jobs as they really ran: for tests that compare the two."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import warm_jobs
from chain import CLI
from jobs import EXAMPLES, ROOT, Recorded, plain_environment, record, torchrun

from prismdbg.capsule.log.events import RankLog
from prismdbg.capsule.log.reader import read_log
from prismdbg.capsule.memory_format import Kind
from prismdbg.jobs.storage.run_folder import RunFolder
from prismdbg.memory.peak import Peak, peak
from prismdbg.memory.trace import NEVER, MemoryTrace, open_trace
from prismdbg.settings.mesh_axes import Axes
from prismdbg.settings.rank_config import RANK_MEMORY

PROGRAMS = Path(__file__).parent / "programs"
TINY = ("--size", "tiny", "--steps", "3", "--log-every", "1")
BOUND_S = 240.0

JOBS: dict[str, tuple[int, str, list[str]]] = {
    "ddp-4": (4, "dp=4", [str(EXAMPLES / "train_ddp.py"), *TINY]),
    "fsdp-tp-4": (4, "dp=2,tp=2", [str(EXAMPLES / "train_fsdp_tp.py"), *TINY, "--tp", "2"]),
    "fsdp-tp-8": (8, "dp=4,tp=2", [str(EXAMPLES / "train_fsdp_tp.py"), *TINY, "--tp", "2"]),
    "pipeline-4": (4, "pp=4", [str(PROGRAMS / "gpt_pipeline.py")]),
    "moe-4": (4, "ep=4", [str(PROGRAMS / "emulated_moe.py"), "3"]),
}


def emulate(
    out: Path, world: int, mesh: str, *options: object, program: list[str], **environment: str
) -> subprocess.CompletedProcess[str]:
    words = [*CLI, "emulate", "-o", out, "--world", world, "--mesh", mesh, *options, "--", *program]
    command, env, usual = list(map(str, words)), plain_environment(**environment), plain_environment()
    if warm_jobs.can_start(command, env, usual):
        return warm_jobs.run(command, env=env, usual=usual, cwd=ROOT, bound_s=BOUND_S)
    return subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=BOUND_S, check=False)


def emulated(out: Path, world: int, mesh: str, *options: object, program: list[str], **environment: str) -> str:
    """What the ranks printed on their standard output."""
    done = emulate(out, world, mesh, "--verbose", *options, program=program, **environment)
    assert done.returncode == 0, f"{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
    return printed(done)


def printed(done: subprocess.CompletedProcess[str]) -> str:
    """By the ranks, with --verbose; then follows what the emulation is worth."""
    return done.stdout.partition("fidelity:")[0]


def python(name: str, *arguments: object) -> list[str]:
    return [sys.executable, "-W", "ignore", str(PROGRAMS / name), *map(str, arguments)]


def log_of(out: Path, rank: int) -> RankLog:
    return read_log(RunFolder(out.resolve()).latest(rank))


def trace_of(run: RunFolder, rank: int) -> MemoryTrace:
    return open_trace(run.latest(rank) / RANK_MEMORY)


def peak_of(run: RunFolder, rank: int) -> Peak:
    """Of the program's own."""
    found = peak(trace_of(run, rank))
    assert found is not None and found.size_bytes > 0
    return found


def allocated(trace: MemoryTrace) -> dict[tuple[int, int], int]:
    """By step and collective, what the backend allocated there."""
    rows = trace.made[trace.is_backend[trace.made] & (trace.kind[trace.made] == Kind.ALLOCATION)]
    found: dict[tuple[int, int], int] = {}
    for row in rows.tolist():
        at = int(trace.step[row]), int(trace.collective[row])
        found[at] = found.get(at, 0) + int(trace.size_bytes[row])
    return found


def late_bytes(found: Peak) -> int:
    """What lived at the peak and was let go by another thread than the program's own: after a collective gloo's threads
    may hold its tensors a moment longer than the program does."""
    trace = found.live.trace
    freed = _freed(found)
    gone = freed != NEVER
    rows = found.live.rows[gone][trace.thread[freed[gone]] != trace.parts.pid]
    return int(trace.size_bytes[rows].sum())


def _kept_bytes(found: Peak) -> int:
    """What lived at the peak and was never let go."""
    rows = found.live.rows[_freed(found) == NEVER]
    return int(found.live.trace.size_bytes[rows].sum())


def _freed(found: Peak) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """By live block the row that frees it."""
    trace = found.live.trace
    return trace.freed[np.searchsorted(trace.made, found.live.rows)]


def assert_identical_peak(emulated: Peak, real: Peak) -> None:
    """To the byte, but for what gloo's threads were late with, perhaps until the program ended. That may have made the
    peak of another moment."""
    late = late_bytes(real) + max(_kept_bytes(real) - _kept_bytes(emulated), 0)
    assert 0 <= real.size_bytes - emulated.size_bytes <= late
    assert real.moment == emulated.moment or late > 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """A job as it really ran, and some of its ranks emulated, each alone; both with their memory traced."""

    name: str
    real: Recorded
    emulated: RunFolder
    axes: Axes

    @property
    def world(self) -> int:
        return JOBS[self.name][0]

    def logs(self, rank: int) -> tuple[RankLog, RankLog]:
        return read_log(self.emulated.latest(rank)), self.real.log(rank)


PairOf = Callable[[str, tuple[int, ...]], Pair]
CHOSEN = [
    ("fsdp-tp-4", (0, 3)),
    ("ddp-4", (0, 1, 2, 3)),
    ("fsdp-tp-8", (0, 5)),
    ("pipeline-4", (0, 1, 2, 3)),
    ("moe-4", (0, 1, 2, 3)),
]


def really(name: str, folder: Path) -> Recorded:
    """The job itself, its memory traced."""
    world, _, program = JOBS[name]
    command = torchrun(Path(program[0]), *program[1:], ranks=world)
    real = record(command, folder, native=True, window_steps=0, memory=True)
    assert real.ended.code == 0, real.ended.output
    return real


def pair(name: str, ranks: tuple[int, ...], home: Path) -> Pair:
    world, mesh, program = JOBS[name]
    real = really(name, home / "real")
    asked = ",".join(map(str, ranks))
    emulated(home / "run", world, mesh, "--memory", "--ranks", asked, program=[sys.executable, *program])
    sizes = [part.partition("=") for part in mesh.split(",")]
    axes = Axes([(axis, int(size)) for axis, _, size in sizes])
    return Pair(name=name, real=real, emulated=RunFolder((home / "run").resolve()), axes=axes)
