"""Iteration time of a real rank, and of the same rank emulated with its peers paced by the wall clock."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path
from statistics import fmean, median

from prismdbg.capsule.log_reader import read_log
from prismdbg.emulate.emulate import emulate
from prismdbg.emulate.pacing import PaceRequest, Paces, pace, run_paced
from prismdbg.emulate.rank_group import Paced
from prismdbg.emulate.request import EmulateRequest
from prismdbg.jobs.record.calibrate import CalibrateRequest, calibrate
from prismdbg.jobs.storage.run_folder import RunFolder
from prismdbg.model.dtypes import ITEM_BYTES
from prismdbg.settings.emulation import ClockKind
from prismdbg.simulate.cluster.cluster import ClusterModel
from prismdbg.simulate.graph.mesh import Mesh
from prismdbg.simulate.quantities import MILLION
from tests.bench.jobs import PROGRAMS, BenchError, environment, run
from tests.bench.settings import Settings
from tests.bench.spread import interval, ratios
from tests.bench.table import Measured, Row

TITLE = "Iteration time of an emulated rank"
WARM_UP_STEPS = 5  # the reducer's buckets are made anew after the first
GOAL_SHARE = 0.005
JUDGED_RANKS = 2  # more share processors here, and the emulated one does not
BOUND_S = 600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """`out`: where each run's step times go. pinned: a processor for each rank."""

    settings: Settings
    ranks: int
    out: Path

    def command(self) -> list[str]:
        s = self.settings
        words = ["--size", s.paced_size, "--batch", s.batch, "--steps", s.paced_steps, "--out", self.out]
        return [str(PROGRAMS / "pinned_steps.py"), *map(str, words)]

    def real(self, folder: Path) -> list[float]:
        """Milliseconds of an iteration on each rank."""
        launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
        run([*launcher, "--nproc-per-node", str(self.ranks), *self.command()], folder / "real.txt")
        return [self._taken(rank) for rank in range(self.ranks)]

    def _taken(self, rank: int) -> float:
        steps = json.loads((self.out / f"{rank}.json").read_text())[WARM_UP_STEPS:]
        return median(seconds for _, seconds, _ in steps) * 1e3

    def emulated(self) -> EmulateRequest:
        return EmulateRequest(
            output=self.out.parent / f"run-{self.ranks}",
            command=(sys.executable, *self.command()),
            world=self.ranks,
            mesh=Mesh.parse(f"dp={self.ranks}"),
            ranks=tuple(range(self.ranks)),
            bound_s=BOUND_S,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Pairs:
    """Milliseconds of an iteration on rank 0: of a real run, of another one after it, and emulated."""

    real: Sequence[float]
    again: Sequence[float]
    emulated: Sequence[float]


def measure(settings: Settings, folder: Path) -> Measured:
    os.environ.update(environment())  # what emulated ranks are started with
    rows, notes = [], []
    for ranks, count in ((JUDGED_RANKS, settings.paced_pairs), (4, max(settings.paced_pairs // 4, 1))):
        out = folder / f"out-{ranks}"
        out.mkdir()
        job = Job(settings=settings, ranks=ranks, out=out)
        paces, cluster = _paced(job, folder)
        pairs = _pairs(job, paces, count, folder)
        rows += _rows(job, pairs)
        notes += _notes(job, paces, pairs, cluster)
    return Measured(rows=rows, notes=notes)


def _paced(job: Job, folder: Path) -> tuple[Paces, ClusterModel]:
    """From the emulation and a calibration alone: no real run of the job is looked at."""
    request = job.emulated()
    sizes = _sizes(job, folder)
    measured = calibrate(
        CalibrateRequest(groups=(job.ranks,), sizes=sizes, ops=("all_reduce",), pin=True, bound_s=30.0), lambda _: None
    )
    if measured is None:
        raise BenchError("calibration found nothing")
    overlap_ppm = MILLION + round(_share(max(sizes), job.ranks, folder) * MILLION)
    cluster = replace(measured.calibrated.cluster, compute_overlap_ppm=overlap_ppm, transfer_overlap_ppm=overlap_ppm)
    found = pace(PaceRequest(emulate=request, cluster=cluster, until=0.005, passes=4), lambda _: None)
    return found, cluster


def _sizes(job: Job, folder: Path) -> tuple[int, ...]:
    """What the job reduces, in bytes: from one short emulation of it."""
    request = replace(job.emulated(), output=folder / f"sizes-{job.ranks}", steps=4, ranks=(0,))
    emulate(request, lambda _: None)
    log = read_log(RunFolder.existing(request.output).latest(0))
    calls = [c for c in log.collectives if c.moment.step >= 2]
    return tuple(sorted({sum(prod(t.shape) * ITEM_BYTES[t.dtype] for t in call.inputs) for call in calls}))


def _share(size_bytes: int, ranks: int, folder: Path) -> float:
    """Of a transfer's time, what a rank's processor works for it."""
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)]
    result = folder / f"share-{ranks}.json"
    run([*launcher, str(PROGRAMS / "transfer_share.py"), str(size_bytes), "25", str(result)], folder / "share.txt")
    return float(json.loads(result.read_text()))


def _pairs(job: Job, paces: Paces, count: int, folder: Path) -> Pairs:
    """In turn, so that what drifts is in all of them."""
    pairs = Pairs(real=[], again=[], emulated=[])
    for number in range(count):
        kinds = ("real", "emulated", "again")
        for kind in kinds if number % 2 else kinds[::-1]:
            taken = _emulated(job, paces) if kind == "emulated" else job.real(folder)[0]
            getattr(pairs, kind).append(taken)
    return pairs


def _emulated(job: Job, paces: Paces) -> float:
    request = job.emulated()
    run_folder = RunFolder.existing(request.output)
    last = run_folder.path / "passes" / str(paces.passes[-1].number)
    shutil.rmtree(run_folder.ranks)
    run_folder.ranks.mkdir(mode=0o700)
    paced = Paced(clock=ClockKind.WALL, schedules={0: last / "schedule.0.json"})
    run_paced(request, run_folder, (0,), paced, lambda _: None)
    return job._taken(0)


def _rows(job: Job, pairs: Pairs) -> list[Row]:
    name = f"{job.ranks} ranks"
    return [
        Row(what=f"{name}: real", values=pairs.real, unit="ms", digits=2),
        Row(what=f"{name}: real again", against="real", values=pairs.again, unit="ms", digits=2,
            ratios=ratios(pairs.again, pairs.real)),
        Row(what=f"{name}: emulated", against="real", values=pairs.emulated, unit="ms", digits=2,
            ratios=ratios(pairs.emulated, pairs.real), goal=1 + GOAL_SHARE if job.ranks == JUDGED_RANKS else None),
    ]  # fmt: skip


def _notes(job: Job, paces: Paces, pairs: Pairs, cluster: ClusterModel) -> list[str]:
    last = paces.passes[-1]
    own = last.ranks[0]
    said = ", ".join(f"{kind} {_errors(of, pairs.real)}" for kind, of in (("emulated", pairs.emulated),
                                                                          ("real again", pairs.again)))  # fmt: skip
    return [
        f"{job.ranks} ranks, against real in pairs: {said}.{_judged(pairs) if job.ranks == JUDGED_RANKS else ''}",
        f"{job.ranks} ranks: a pass of the emulation says {own.simulated_ns / 1e6:.2f} ms simulated, "
        f"{own.emulated_ns / 1e6:.2f} ms emulated after {len(paces.passes)} passes; a transfer takes "
        f"{cluster.compute_overlap_ppm / MILLION - 1:.0%} of a core. GPT {job.settings.paced_size}, batch "
        f"{job.settings.batch}, DDP over gloo, one thread a rank, pinned; median of "
        f"{job.settings.paced_steps - WARM_UP_STEPS} iterations, as the program itself times them.",
    ]


def _judged(pairs: Pairs) -> str:
    """The goal: the emulation's interval lies within that of real against real."""
    emulated = interval(ratios(pairs.emulated, pairs.real))
    again = interval(ratios(pairs.again, pairs.real))
    if emulated is None or again is None:
        return ""
    lies = again.low <= emulated.low and emulated.high <= again.high
    return f" The interval of the emulated ratio {'lies' if lies else 'does not lie'} within that of real again."


def _errors(values: Sequence[float], real: Sequence[float]) -> str:
    """Of pairs, in per cent: mean and largest absolute error, and the signed one with its interval."""
    errors = [ratio - 1 for ratio in ratios(values, real)]
    likely = interval(errors)
    between = f" (95 %: {likely.low:+.2%}..{likely.high:+.2%})" if likely else ""
    sizes = [abs(error) for error in errors]
    return f"mean {fmean(sizes):.2%}, max {max(sizes):.2%}, signed median {median(errors):+.2%}{between}"
