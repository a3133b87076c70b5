"""Iteration time of a real rank, and of the same rank emulated with its peers paced by the wall clock."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import fmean, median

from prismdbg.emulate.emulate import emulate
from prismdbg.emulate.pacing import PaceRequest, Paces, pace
from prismdbg.emulate.request import EmulateRequest
from prismdbg.job_graph.builder import iteration_of
from prismdbg.jobs.record.calibrate import CalibrateRequest, calibrate
from prismdbg.jobs.storage.run_folder import RunFolder
from prismdbg.log.rank_log import read_log
from prismdbg.simulate.cluster.cluster import ClusterModel
from prismdbg.simulate.cluster.transfer import SEND
from prismdbg.simulate.graph.entries import Kind
from prismdbg.simulate.graph.mesh import Mesh
from prismdbg.simulate.quantities import MILLION
from tests.bench.jobs import PROGRAMS, BenchError, environment, run
from tests.bench.settings import Settings
from tests.bench.spread import interval, ratios
from tests.bench.table import Measured, Row

TITLE = "Iteration time of an emulated rank"
WARM_UP_STEPS = 5  # the reducer's buckets are made anew after the first
GOAL_SHARE = 0.005
MOST_SIZES = 8
JUDGED_RANKS = 2  # more share processors here: a factor of the calibration stands for that
BOUND_S = 600.0
CALIBRATED_S = 15.0
UNTIL = 0.005
TIMED = "of real runs as the program itself times them, emulated as the log of the last pass does."


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """`name`: of its rows; told: what it is. mesh: of as many ranks. program: with its arguments; it writes each run's
    step times into `out`, and pins each rank to a processor. passes: of the emulation, at most. not_calibrated: what
    cannot be of this job, of `calibrate.MEASURES`."""

    name: str
    told: str
    ranks: int
    mesh: str
    program: tuple[str, ...]
    out: Path
    passes: int
    not_calibrated: tuple[str, ...] = ()

    def real(self, folder: Path) -> list[float]:
        """Milliseconds of an iteration on each rank."""
        launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
        run([*launcher, "--nproc-per-node", str(self.ranks), *self.program], folder / "real.txt")
        return [self._taken(rank) for rank in range(self.ranks)]

    def _taken(self, rank: int) -> float:
        steps = json.loads((self.out / f"{rank}.json").read_text())[WARM_UP_STEPS:]
        return median(seconds for _, seconds, _ in steps) * 1e3

    def emulated(self, pair: int) -> EmulateRequest:
        return EmulateRequest(
            output=self.out.parent / f"run-{self.out.name}-{pair}",
            command=(sys.executable, *self.program),
            world=self.ranks,
            mesh=Mesh.parse(self.mesh),
            ranks=tuple(range(self.ranks)),
            bound_s=BOUND_S,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Pairs:
    """Milliseconds of an iteration on rank 0: of a real run, of another one after it, and emulated. paces, clusters: of
    each pair, which the emulation was paced and calibrated for."""

    real: list[float] = field(default_factory=list)
    again: list[float] = field(default_factory=list)
    emulated: list[float] = field(default_factory=list)
    paces: list[Paces] = field(default_factory=list)
    clusters: list[ClusterModel] = field(default_factory=list)


def measure(settings: Settings, folder: Path) -> Measured:
    os.environ.update(environment())  # what emulated ranks are started with
    rows, notes = [], []
    for ranks, count in ((JUDGED_RANKS, settings.paced_pairs), (4, max(settings.paced_pairs // 4, 1))):
        found = compared(_ddp(settings, ranks, folder), count, folder, is_judged=ranks == JUDGED_RANKS)
        rows += found.rows
        notes += found.notes
    return Measured(rows=rows, notes=notes)


def _ddp(settings: Settings, ranks: int, folder: Path) -> Job:
    out = folder / f"out-{ranks}"
    out.mkdir()
    size, batch, steps = settings.paced_size, settings.batch, settings.paced_steps
    words = ["--size", size, "--batch", batch, "--steps", steps, "--out", out]
    return Job(
        name=f"{ranks} ranks",
        told=f"GPT {size}, batch {batch}, DDP over gloo, one thread a rank, pinned; median of "
        f"{steps - WARM_UP_STEPS} iterations: {TIMED}",
        ranks=ranks,
        mesh=f"dp={ranks}",
        program=(str(PROGRAMS / "pinned_steps.py"), *map(str, words)),
        out=out,
        passes=settings.paced_passes,
    )


def compared(job: Job, count: int, folder: Path, *, is_judged: bool) -> Measured:
    """`count` times: real, real again, and emulated, calibrated and paced anew: what drifts is in each pair alike, and
    the interval holds all that an emulation rests on."""
    pairs = _pairs(job, count, folder)
    return Measured(rows=_rows(job, pairs, is_judged), notes=_notes(job, pairs))


def _paced(job: Job, number: int, communicated: tuple[tuple[str, ...], tuple[int, ...]]) -> tuple[Paces, ClusterModel]:
    """From the emulation and a calibration alone: no real run of the job is looked at."""
    ops, sizes = communicated
    wanted = CalibrateRequest(
        groups=(job.ranks,), sizes=sizes, ops=ops, pin=True, bound_s=CALIBRATED_S, without=job.not_calibrated
    )
    measured = calibrate(wanted, lambda _: None)
    if measured is None:
        raise BenchError("calibration found nothing")
    cluster = measured.calibrated.cluster
    request = PaceRequest(emulate=job.emulated(number), cluster=cluster, until=UNTIL, passes=job.passes)
    return pace(request, lambda _: None), cluster


def _communicated(job: Job, folder: Path) -> tuple[tuple[str, ...], tuple[int, ...]]:
    """The operations of an iteration, and at most `MOST_SIZES` of the sizes, in bytes: from one short emulation."""
    request = replace(job.emulated(0), output=folder / f"sizes-{job.out.name}", steps=4)
    emulate(request, lambda _: None)
    run_folder, ops, sizes = RunFolder.existing(request.output), set(), set()
    for rank in request.ranks:
        entries = iteration_of(read_log(run_folder.latest(rank)), request.mesh)
        for place in entries.communicates.nonzero()[0]:
            is_collective = entries.kind[place] == Kind.COLLECTIVE
            ops.add(entries.texts[entries.op[place]] if is_collective else SEND)
            sizes.add(int(entries.size_bytes[place]))
    ordered = sorted(sizes - {0})
    step = -(-len(ordered) // MOST_SIZES)
    return tuple(sorted(ops)), tuple(sorted({*ordered[::step], ordered[-1]}))


def _pairs(job: Job, count: int, folder: Path) -> Pairs:
    """In turn, so that what drifts is in all of them."""
    pairs, communicated = Pairs(), _communicated(job, folder)
    for number in range(count):
        kinds = ("real", "emulated", "again")
        for kind in kinds if number % 2 else kinds[::-1]:
            if kind == "emulated":
                paces, cluster = _paced(job, number, communicated)
                pairs.emulated.append(paces.passes[-1].ranks[0].emulated_ns / 1e6)
                pairs.paces.append(paces)
                pairs.clusters.append(cluster)
                shutil.rmtree(job.emulated(number).output)
            else:
                getattr(pairs, kind).append(job.real(folder)[0])
    return pairs


def _rows(job: Job, pairs: Pairs, is_judged: bool) -> list[Row]:
    name = job.name
    return [
        Row(what=f"{name}: real", values=pairs.real, unit="ms", digits=2),
        Row(what=f"{name}: real again", against="real", values=pairs.again, unit="ms", digits=2,
            ratios=ratios(pairs.again, pairs.real)),
        Row(what=f"{name}: emulated", against="real", values=pairs.emulated, unit="ms", digits=2,
            ratios=ratios(pairs.emulated, pairs.real), goal=1 + GOAL_SHARE if is_judged else None),
    ]  # fmt: skip


def _notes(job: Job, pairs: Pairs) -> list[str]:
    own = [paces.passes[-1].ranks[0] for paces in pairs.paces]
    simulated = [each.simulated_ns / 1e6 for each in own]
    drifts = [each.drift for each in own]
    converged = sum(paces.has_converged for paces in pairs.paces)
    said = ", ".join(f"{kind} {_errors(of, pairs.real)}" for kind, of in (("emulated", pairs.emulated),
                                                                          ("real again", pairs.again)))  # fmt: skip
    return [
        f"{job.name}, against real in pairs: {said}.{_judged(pairs)}",
        f"{job.name}: calibrated and paced anew in each pair; {converged} of {len(own)} agreed with their simulation "
        f"to {UNTIL:.1%} in {job.passes} passes; medians of the last passes: {median(simulated):.2f} ms simulated, "
        f"{median(pairs.emulated):.2f} ms emulated, {median(drifts):.3f} ({min(drifts):.3f}..{max(drifts):.3f}) times "
        f"as long computed as scheduled. {_factors(job, pairs.clusters)}. {job.told}",
    ]


def _factors(job: Job, clusters: Sequence[ClusterModel]) -> str:
    computing = median(cluster.compute_overlap_ppm for cluster in clusters) / MILLION
    moving = median(cluster.transfer_overlap_ppm for cluster in clusters) / MILLION
    sharing = median(cluster.processors.ppm(job.ranks) for cluster in clusters) / MILLION
    return (
        f"Calibrated, medians: each takes longer beside the other: computation {computing:.2f} times, a transfer "
        f"{moving:.2f}; ranks that share processors compute {sharing:.2f} times as long"
    )


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
