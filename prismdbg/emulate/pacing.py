"""`prismdbg emulate --pace`: what the ranks did becomes the graph of the whole job, its simulation says when their
peers are there, and the ranks run again by that; until what they take and what the simulation says they take agree."""

from __future__ import annotations

import os
import shutil
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from prismdbg.capsule.log.events import RankLog
from prismdbg.capsule.log.notes import DRIFT
from prismdbg.emulate.emulate import Emulated, emulate
from prismdbg.emulate.paced_parts import emulated_parts, runs_on_stream
from prismdbg.emulate.rank_group import Paced, RankGroup
from prismdbg.emulate.rank_scheduler import RankScheduler
from prismdbg.emulate.request import LEAST_STEPS, EmulateRequest
from prismdbg.emulate.steps_alike import AlikeSteps, steps_alike
from prismdbg.errors import UsageError
from prismdbg.job_graph.builder import GraphRequest, build_graph
from prismdbg.job_graph.cpu_waits import displaced
from prismdbg.jobs.capture.agent_sockets import make_socket_dir
from prismdbg.jobs.capture.capture import Say
from prismdbg.jobs.record.launch_line import parse
from prismdbg.jobs.storage.pass_errors import FILE_NAME, not_compared
from prismdbg.jobs.storage.run_folder import RunFolder, write_json
from prismdbg.log.rank_log import read_log
from prismdbg.model.plurals import counted
from prismdbg.model.schedule import Schedule
from prismdbg.settings.emulation import ClockKind
from prismdbg.settings.memory_room import room_bytes
from prismdbg.settings.rank_config import RANK_MEMORY
from prismdbg.simulate.cluster.cluster import ClusterModel
from prismdbg.simulate.engine.arrivals import Arrivals
from prismdbg.simulate.engine.changes import Changes
from prismdbg.simulate.engine.engine import Keep
from prismdbg.simulate.engine.schedule import SLOWED_PPM, schedule_of
from prismdbg.simulate.engine.simulate import simulate
from prismdbg.simulate.engine.timeline import Timeline
from prismdbg.simulate.engine.topology import processors_ppm
from prismdbg.simulate.graph.job_graph import JobGraph
from prismdbg.simulate.graph.mesh import Ints
from prismdbg.simulate.quantities import MILLION
from prismdbg.simulate.report.rank_parts import ITERATION, RankParts, moved_ns, simulated_parts

SHOWN_SHARE = 0.01
PASSES = "passes"
ROUND_STEPS = 8
MOST_AT_ONCE = 8  # ranks that stand while another one runs


@dataclass(frozen=True, slots=True, kw_only=True)
class PaceRequest:
    """`until`: the largest difference between a simulated and an emulated rank, of the iteration and of each of its
    components, as a share of the iteration. passes: at most so many.

    alike: as of `graph build`, where some ranks stand for others.
    """

    emulate: EmulateRequest
    cluster: ClusterModel
    clock: ClockKind = ClockKind.WALL
    until: float = 0.01
    passes: int = 4
    alike: tuple[str, ...] = ()

    def check(self) -> None:
        """What can be known before anything runs."""
        self.emulate.check()
        if self.emulate.together:
            raise UsageError(
                "--together and --pace cannot be combined: ranks that run at once communicate as fast as they can",
                hint="leave one of them out",
            )
        for axis in self.alike:
            self.emulate.mesh.axis(axis)
        if 0 < self.emulate.steps < LEAST_STEPS:
            raise UsageError(
                f"--steps {self.emulate.steps} leaves no complete step after the first, which includes the program's "
                "start",
                hint="give --steps 4 or more: --pace needs a typical step",
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class RankPass:
    """An iteration of one rank. emulated_ns: the median of the paced steps, from one's begin to the next one's.

    simulated, emulated: what it was made of; `emulated` is None where the log does not tell. displaced: in this share
    of its time the rank waited for a CPU, in the median step. on_stream: its calls were waits on a device, so that the
    log does not tell what an iteration took. drift: how long it computed, as a share of what was scheduled. Its peers
    were taken to compute as much longer, and what was simulated is of ranks that do.
    """

    rank: int
    simulated_ns: int
    emulated_ns: int
    steps: int
    simulated: RankParts
    emulated: RankParts | None
    displaced: float = 0.0
    on_stream: bool = False
    drift: float = 1.0

    @property
    def difference(self) -> float:
        """Signed share: positive where the emulated rank takes longer."""
        return (self.emulated_ns - self.simulated_ns) / max(self.simulated_ns, 1)

    @property
    def differences(self) -> dict[str, float]:
        """By component, signed as `difference`, as shares of the simulated iteration."""
        found = {ITERATION: self.difference}
        if self.emulated is not None:
            simulated, whole_ns = self.simulated.by_component, max(self.simulated_ns, 1)
            for name, emulated_ns in self.emulated.by_component.items():
                found[name] = (emulated_ns - simulated[name]) / whole_ns
        return found

    @property
    def largest(self) -> tuple[str, float]:
        """Component and difference."""
        return max(self.differences.items(), key=lambda pair: abs(pair[1]))

    def to_json(self) -> dict[str, Any]:
        emulated = self.emulated.by_component if self.emulated is not None else {}
        return {
            "rank": self.rank,
            "simulated_ns": self.simulated_ns,
            "emulated_ns": self.emulated_ns,
            "steps": self.steps,
            "displaced": self.displaced,
            "on_stream": self.on_stream,
            "drift": self.drift,
            "difference": self.difference,
            "components": {
                name: {"simulated_ns": self.simulated.by_component[name], "emulated_ns": emulated_ns}
                for name, emulated_ns in emulated.items()
            },
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Pass:
    """`iteration_ns`: of the whole job, simulated, with the median of the ranks' drifts."""

    number: int
    iteration_ns: int
    ranks: tuple[RankPass, ...]

    @property
    def largest(self) -> RankPass:
        """The one with the largest difference of all components."""
        return max(self.ranks, key=lambda each: abs(each.largest[1]))

    def agrees(self, until: float) -> bool:
        """Also in how long the ranks computed: what was simulated is moved by the drift, so the differences alone do
        not show a schedule that computes too little."""
        drifts = max(abs(each.drift - 1) for each in self.ranks)
        return not self.on_stream and max(abs(self.largest.largest[1]), drifts) <= until

    @property
    def on_stream(self) -> tuple[int, ...]:
        """Ranks that cannot be compared."""
        return tuple(each.rank for each in self.ranks if each.on_stream)


@dataclass(frozen=True, slots=True, kw_only=True)
class Paces:
    emulated: Emulated
    passes: tuple[Pass, ...]
    has_converged: bool


def pace(request: PaceRequest, say: Say) -> Paces:
    """All passes stay in RUN/passes; RUN/ranks holds the last one. Not to converge is a result, not an error. Where
    calls were waits on a device there is one pass: another one would have nothing more to go by."""
    request.check()
    emulated = emulate(request.emulate, say)
    run = RunFolder.existing(request.emulate.output)
    if emulated.fit.problem is not None:
        raise emulated.fit.problem
    ranks = _sandbox(request.emulate, emulated)
    done: list[Pass] = []
    has_converged = False
    steps = _steps_of(run, ranks)
    say(f"{len(steps.steps)} of {counted(steps.whole, 'complete step')} issue the same calls: these are paced")
    graph = _first_graph(request, run, steps)
    while not has_converged and len(done) < request.passes:
        found = _pass(request, run, ranks, graph, steps, len(done) + 1, say)
        done.append(found)
        has_converged = found.agrees(request.until)
        for each in found.ranks:
            say(_line(found.number, each))
        _write(run, request, done, has_converged)
        if found.on_stream:
            if len(done) < request.passes:
                say(f"no more passes: {not_compared(found.on_stream)}, so another pass cannot come closer")
            break
        steps = _steps_of(run, ranks)
        graph = _graph(request, run, steps)
    return Paces(emulated=emulated, passes=tuple(done), has_converged=has_converged)


def _sandbox(request: EmulateRequest, emulated: Emulated) -> tuple[int, ...]:
    """The ranks that run again: those asked for, or the one of each class."""
    if emulated.classes is not None:
        return tuple(emulated.classes.kinds.bases())
    return request.ranks


def _steps_of(run: RunFolder, ranks: Sequence[int]) -> AlikeSteps:
    return steps_alike([read_log(run.latest(rank)) for rank in ranks])


def _first_graph(request: PaceRequest, run: RunFolder, steps: AlikeSteps) -> JobGraph:
    try:
        return _graph(request, run, steps)
    except UsageError as error:
        raise UsageError(
            f"cannot build the graph of the whole job from the ranks that ran: {error}",
            hint="run one rank of each role: --classes finds them, or name them with --ranks and --alike AXES",
        ) from error


def _graph(request: PaceRequest, run: RunFolder, steps: AlikeSteps) -> JobGraph:
    return build_graph(GraphRequest(run=run.path, alike=request.alike, step=steps.typical, like_it=steps.steps))


def _pass(
    request: PaceRequest,
    run: RunFolder,
    ranks: tuple[int, ...],
    graph: JobGraph,
    steps: AlikeSteps,
    number: int,
    say: Say,
) -> Pass:
    timeline = simulate(graph, _cluster(request, number), keep=Keep.ALL)
    arrivals = Arrivals(timeline)
    slowed = _slowed(request, graph, number)
    slowed_arrivals = None if slowed is None else Arrivals(slowed)
    slower_ppm = _slower_ppm(request)
    folder = run.path / PASSES / str(number)
    folder.mkdir(parents=True)
    schedules: dict[int, Schedule] = {}
    simulated: dict[int, RankParts] = {}
    for rank in ranks:
        schedules[rank] = schedule_of(
            timeline,
            rank,
            arrivals,
            step=steps.typical,
            steps=steps.steps,
            slowed=slowed_arrivals,
            contention_ppm=_contention_ppm(request.cluster),
            slower_ppm=int(slower_ppm[rank]),
        )
        schedules[rank].save(_schedule_file(folder, rank))
        simulated[rank] = simulated_parts(timeline.of(rank), schedules[rank])
    set_aside(run, number - 1)
    files = {rank: _schedule_file(folder, rank) for rank in ranks}
    rounds = steps_a_round(logs_of(run, ranks, number - 1)) if request.clock is ClockKind.WALL else 0
    run_paced(request.emulate, run, ranks, Paced(clock=request.clock, schedules=files), say, round_steps=rounds)
    found = []
    for rank in ranks:
        log = read_log(run.latest(rank))
        taken, on_stream = steps_alike([log], among=steps.steps), runs_on_stream(log, schedules[rank])
        shares = [share for step, share in displaced(log).items() if step in steps.steps]
        drift = _drift(log, steps.steps)
        parts, iteration_ns = simulated[rank], schedules[rank].iteration_ns
        if slowed is not None:
            there = schedule_of(slowed, rank, slowed_arrivals or arrivals)
            parts = parts.moved(simulated_parts(slowed.of(rank), there), _share_of(drift))
            iteration_ns = _moved_ns(iteration_ns, there.iteration_ns, drift)
        found.append(
            RankPass(
                rank=rank,
                simulated_ns=iteration_ns,
                emulated_ns=taken.median_ns,
                steps=len(taken.steps),
                simulated=parts,
                emulated=emulated_parts(log, schedules[rank]),
                displaced=median(shares) if shares else 0.0,
                on_stream=on_stream,
                drift=drift,
            )
        )
    whole_ns = timeline.iteration_ns
    if slowed is not None:
        whole_ns = _moved_ns(whole_ns, slowed.iteration_ns, median(each.drift for each in found))
    return Pass(number=number, iteration_ns=whole_ns, ranks=tuple(found))


def _share_of(drift: float) -> float:
    """How far it is toward the job whose ranks compute a little longer."""
    return (drift - 1) * MILLION / (SLOWED_PPM - MILLION)


def _moved_ns(plain_ns: int, slowed_ns: int, drift: float) -> int:
    """A simulated time of the job whose ranks all compute so much longer."""
    return moved_ns(plain_ns, slowed_ns, _share_of(drift))


def _slowed(request: PaceRequest, graph: JobGraph, number: int) -> Timeline | None:
    """As simulated where all ranks compute a little longer: tells when peers come while the machine is slower or faster
    than it was. None where nothing drifts."""
    if request.clock is ClockKind.VIRTUAL:
        return None
    everywhere = Changes(compute_ppm=dict.fromkeys(range(graph.mesh.world), SLOWED_PPM))
    return simulate(graph, _cluster(request, number), everywhere, keep=Keep.ALL)


def _drift(log: RankLog, steps: Collection[int]) -> float:
    ppm = [int(note.data["ppm"]) for note in log.notes if note.kind == DRIFT and note.data["step"] in steps]
    return median(ppm) / MILLION if ppm else 1.0


def steps_a_round(logs: Sequence[RankLog]) -> int:
    """How many steps a rank runs before the next one does; 0 where each runs to its end: where too many would stand
    meanwhile, or would not fit into memory, and on devices, whose memory is not known."""
    if not 1 < len(logs) <= MOST_AT_ONCE or any(call.is_on_device for log in logs for call in log.collectives):
        return 0
    own_bytes = [
        n.data["peak_bytes"] - n.data["shared_bytes"] for log in logs for n in log.notes if n.kind == "resources"
    ]
    fits = len(own_bytes) == len(logs) and sum(own_bytes) <= room_bytes(os.getpid()) // 2
    return ROUND_STEPS if fits else 0


def logs_of(run: RunFolder, ranks: Sequence[int], number: int) -> list[RankLog]:
    """Of a pass that was set aside."""
    folder = RunFolder(run.path / PASSES / str(number))
    return [read_log(folder.latest(rank)) for rank in ranks]


def _schedule_file(folder: Path, rank: int) -> Path:
    return folder / f"schedule.{rank}.json"


def _contention_ppm(cluster: ClusterModel) -> int:
    """Of a transfer's time, what it takes from the processor of a rank that computes meanwhile: where the rank becomes
    slower by so much, the transfer had this share."""
    return MILLION - MILLION * MILLION // max(cluster.compute_overlap_ppm, MILLION)


def _slower_ppm(request: PaceRequest) -> Ints:
    """By rank: how much longer it is made to compute. On the virtual clock its computations are given."""
    world = request.emulate.mesh.world
    if request.clock is ClockKind.VIRTUAL:
        return np.full(world, MILLION, dtype=np.int64)
    return processors_ppm(request.cluster, world)


def _is_contended(request: PaceRequest) -> bool:
    """Whether what the ranks computed took longer, as the cluster file says; on either clock."""
    slower_ppm = processors_ppm(request.cluster, request.emulate.mesh.world)
    return request.cluster.compute_overlap_ppm != MILLION or bool((slower_ppm != MILLION).any())


def _cluster(request: PaceRequest, number: int) -> ClusterModel:
    """On the wall clock a paced rank feels what a transfer takes from its computation: that is added once. It does not
    feel what computation takes from a transfer, which ends when the schedule says."""
    if request.clock is ClockKind.VIRTUAL:
        return request.cluster
    compute_overlap_ppm = request.cluster.compute_overlap_ppm if number == 1 else MILLION
    return replace(request.cluster, compute_overlap_ppm=compute_overlap_ppm)


def set_aside(run: RunFolder, number: int) -> None:
    """What RUN/ranks and RUN/output hold, as the pass of that number."""
    folder = run.path / PASSES / str(number)
    folder.mkdir(parents=True, exist_ok=True)
    traces = {path: path.resolve() for path in run.ranks.glob(f"*/{RANK_MEMORY}") if path.is_symlink()}
    run.ranks.rename(folder / run.ranks.name)
    if run.output.exists():
        run.output.rename(folder / run.output.name)
    for path, target in traces.items():
        moved = folder / path.relative_to(run.path)
        moved.unlink()
        moved.symlink_to(os.path.relpath(target, moved.parent))
    run.ranks.mkdir(mode=0o700)


def run_paced(
    request: EmulateRequest, run: RunFolder, ranks: tuple[int, ...], paced: Paced, say: Say, *, round_steps: int = 0
) -> None:
    """One pass, into RUN/ranks. round_steps: of each rank before the next one goes on, 0 for all."""
    sockets = make_socket_dir()
    again = replace(request, ranks=ranks, classes=None)
    crew = RankGroup(again, run, parse(again.command), sockets, say, paced)
    try:
        scheduler = RankScheduler(crew.go)
        if round_steps:
            scheduler.complete_in_rounds(ranks, round_steps)
        for rank in ranks:
            scheduler.complete(rank)
    finally:
        crew.close()
        shutil.rmtree(sockets, ignore_errors=True)


def _line(number: int, each: RankPass) -> str:
    parts = ", ".join(f"{name} {share:+.2%}" for name, share in each.differences.items() if name != ITERATION)
    if each.on_stream:
        return (
            f"pass {number}: rank {each.rank}: an iteration takes {each.simulated_ns / 1e6:.3f} ms simulated; its host "
            f"took {each.emulated_ns / 1e6:.3f} ms (median of {each.steps}), which is not compared"
        )
    return (
        f"pass {number}: rank {each.rank}: an iteration takes {each.simulated_ns / 1e6:.3f} ms simulated, "
        f"{each.emulated_ns / 1e6:.3f} ms emulated ({each.difference:+.3%}, median of {each.steps}"
        + (f"; {parts} of it" if parts else "")
        + ")"
        + (
            f"; it computed {each.drift:.2f} times as long as scheduled, and so did its peers"
            if abs(each.drift - 1) >= SHOWN_SHARE
            else ""
        )
        + (f"; for {each.displaced:.0%} of it the rank waited for a CPU" if each.displaced >= SHOWN_SHARE else "")
    )


def _write(run: RunFolder, request: PaceRequest, done: Sequence[Pass], has_converged: bool) -> None:
    write_json(
        run.path / FILE_NAME,
        {
            "clock": str(request.clock),
            "until": request.until,
            "has_converged": has_converged,
            "is_contended": _is_contended(request),
            "passes": [
                {
                    "number": each.number,
                    "iteration_ns": each.iteration_ns,
                    "ranks": [of_rank.to_json() for of_rank in each.ranks],
                }
                for each in done
            ],
        },
    )
