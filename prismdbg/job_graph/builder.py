"""The execution graph of one iteration from the logs of a run: of every rank, or of some that stand for others."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

from prismdbg.capsule.log.events import RankLog
from prismdbg.capsule.memory_reader import is_trace
from prismdbg.errors import CapsuleError, UsageError
from prismdbg.importers.formats import is_imported
from prismdbg.job_graph import rank_end, synthesized
from prismdbg.job_graph.as_recorded import as_recorded, check_all_recorded
from prismdbg.job_graph.cpu_waits import displaced
from prismdbg.job_graph.earlier_steps import check_kept, unusual
from prismdbg.job_graph.one_iteration import check_told, one_iteration
from prismdbg.job_graph.origin import origin_of
from prismdbg.job_graph.recorded_step import (
    around,
    check_computed,
    doubts_of_devices,
    last_whole_step,
    near,
    recorded_step,
    traced_in,
)
from prismdbg.job_graph.replicated_ranks import replicate
from prismdbg.job_graph.slice_entries import Source, entries_of
from prismdbg.jobs.evidence import gather
from prismdbg.jobs.storage.classes_file import read_classes
from prismdbg.jobs.storage.pass_errors import read_passes
from prismdbg.jobs.storage.run_folder import RunFolder, rank_of, read_json
from prismdbg.log.columns import LAST_BYTES, read_near
from prismdbg.log.rank_log import columns_of, rank_log, read_log
from prismdbg.model.meanwhile import one_by_one
from prismdbg.settings.rank_config import RANK_MEMORY
from prismdbg.simulate.cluster.cluster import ideal
from prismdbg.simulate.engine.engine import Keep
from prismdbg.simulate.engine.simulate import simulate
from prismdbg.simulate.graph import pooling
from prismdbg.simulate.graph.class_finder import RankClasses
from prismdbg.simulate.graph.entries import Entries, Provenance
from prismdbg.simulate.graph.folding import fold, fold_kinds, same_shape
from prismdbg.simulate.graph.job_graph import JobGraph
from prismdbg.simulate.graph.mesh import Mesh
from prismdbg.simulate.graph.pooling import Spread, pooled
from prismdbg.simulate.graph.sharing import shared_out
from prismdbg.simulate.graph.typical_iteration import Iteration, typical_iteration

MOST_STEPS = 16  # that go into a median
MOST_UNWAITED = 4  # that are named
_CLOCKS = "the files do not say on which machines the ranks ran: their clocks are taken to be the same"
_ANY_SIZE = 1 << 62
_PYTHON_CALLER = "/torch/distributed/distributed_c10d.py"  # what C++ waits for in its own ways is not always told


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphRequest:
    """`alike`: ranks that differ along these axes only are taken to do the same. step: None for the last whole one,
    of an emulation with the medians of the whole ones before it. like_it: of an emulation, the steps whose medians the
    computations of `step` take.

    as_recorded: every rank by itself, with the transfers that were recorded, on one clock.
    """

    run: Path
    mesh: Mesh | None = None
    alike: tuple[str, ...] = ()
    step: int | None = None
    like_it: tuple[int, ...] = ()
    as_recorded: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class _Job:
    """`folders`: of the ranks' logs; empty for another tool's files, of which `gaps` says what they lack."""

    run: RunFolder
    emulated: object
    mesh: Mesh
    folders: Mapping[int, Path]
    logs: dict[int, RankLog]
    gaps: tuple[str, ...] = ()


def _logs_of(request: GraphRequest) -> _Job:
    if not RunFolder(request.run).run_json.is_file() and is_imported(request.run):
        return _imported(request)
    run = RunFolder.existing(request.run)
    emulated = read_json(run.run_json).get("emulated")
    mesh = request.mesh or _mesh_of(run, emulated)
    folders = {rank_of(folder): folder for folder in run.rank_folders()}  # a later attempt replaces an earlier
    if not folders:
        raise UsageError(f"{run.path} contains no rank's log", hint="give the folder that `record` or `emulate` wrote")
    each = one_by_one(list(folders.items()), "reading the logs of ranks")
    logs = {rank: _log_in(folder, rank, None if emulated else LAST_BYTES) for rank, folder in each}
    return _Job(run=run, emulated=emulated, mesh=mesh, folders=folders, logs=logs)


def _imported(request: GraphRequest) -> _Job:
    found = gather(request.run)
    if found.damaged:
        rank, why = next(iter(found.damaged.items()))
        raise CapsuleError(f"the file of rank {rank} cannot be read: {why}", hint="fetch it again, or remove it")
    run = RunFolder(request.run)
    mesh = request.mesh or _mesh_of(run, None)
    logs, said = one_iteration(found.logs)
    clocks = () if found.clocks_agree or not request.as_recorded else (_CLOCKS,)
    return _Job(run=run, emulated=None, mesh=mesh, folders={}, logs=logs, gaps=(*found.gaps, *said, *clocks))


def build_graph(request: GraphRequest) -> JobGraph:
    """UsageError where ranks do not fit together, where they would wait for each other in a circle, and where a rank's
    end cut the step short; an end after it is among the doubts of the graph's origin."""
    job = _logs_of(request)
    run, emulated, mesh, folders = job.run, job.emulated, job.mesh, job.folders
    step = last_whole_step(job.logs.values()) if request.step is None else request.step
    if request.as_recorded:
        check_all_recorded(mesh, job.logs)  # also of a step on a device, of which no graph is made
    logs = _of_step(job, step)
    doubts = _doubts(job, logs, step)
    if request.as_recorded:
        recorded_graph = as_recorded(mesh, logs, step, folders or None)
        return replace(recorded_graph, origin=replace(recorded_graph.origin, doubts=doubts))
    provenance = Provenance.REAL if emulated else Provenance.RECORDED
    classes = read_classes(run, mesh) if not request.alike and request.mesh is None else None
    chosen = logs if classes is None else {base: _log_of(logs, base, run) for base in classes.kinds.bases()}
    steps = _steps(request, step, is_emulated=bool(emulated))
    told = {rank: _told(log, mesh, steps, provenance) for rank, log in chosen.items()}
    recorded = {rank: _usual(chosen[rank], mesh, folders.get(rank), each, provenance) for rank, each in told.items()}
    spreads: list[Spread] = []
    memory: tuple[str, ...] = ()
    if emulated:
        memory = pooling.memory_doubts(recorded)
        checked = {rank: _told(log, mesh, steps, provenance) for rank, log in _checked(logs, classes).items()}
        others = {rank: typical_iteration(list(each.values())) for rank, each in checked.items()}
        shared, spreads = pooled(recorded | others)
        recorded = {rank: shared[rank] for rank in recorded}
    kinds = None if classes is None else classes.kinds

    def of_all(by_rank: Mapping[int, Entries]) -> JobGraph:
        return fold(mesh, replicate(mesh, by_rank, request.alike)) if kinds is None else fold_kinds(kinds, by_rank)

    graph = of_all(recorded)
    check_it_ends(graph)
    for before in steps[:-1]:
        _check_step(before, told, recorded, of_all)
    origin = origin_of(mesh, recorded, logs, step, is_emulated=bool(emulated), classes=classes)
    passed = read_passes(run.path) if emulated else None
    is_contended = passed is not None and passed.is_contended
    values = synthesized.doubts_in(chosen.values()) if emulated else ()
    never = never_waited_for(chosen, step) if emulated else ()
    return replace(
        graph,
        origin=replace(
            origin,
            is_contended=is_contended,
            doubts=(*doubts, *values, *pooling.doubts(spreads), *memory, *islice(never, MOST_UNWAITED)),
        ),
    )


def _of_step(job: _Job, step: int) -> dict[int, RankLog]:
    """The logs around a step; UsageError where they do not tell all of it."""
    if not job.folders:
        logs = {rank: near(log, range(step, step + 1)) for rank, log in job.logs.items()}
        check_told(logs, step)
        for log in logs.values():
            check_computed(log, step)
        return logs
    if job.emulated:
        rank_end.check_whole(job.mesh, job.logs, step)
        return job.logs
    logs = {rank: _kept_near(job, rank, step) for rank in sorted(job.logs)}
    rank_end.check_whole(job.mesh, logs, step)
    for log in logs.values():
        check_computed(log, step)
    return logs


def _kept_near(job: _Job, rank: int, step: int) -> RankLog:
    """Of one rank; UsageError where its log no longer has the step's calls. Of all ranks together, what is between the
    step and the end would need gigabytes."""
    log, steps = job.logs[rank], range(step, step + 1)
    columns = columns_of(log)
    if columns.read_from_later and columns.first_step_read >= step:
        log = rank_log(read_near(job.folders[rank], around(steps)))
    check_kept(job.mesh, {rank: log}, step)
    return near(log, steps)


def _doubts(job: _Job, logs: Mapping[int, RankLog], step: int) -> tuple[str, ...]:
    """What of a graph of this step is not reliable because of the logs themselves."""
    doubts = job.gaps or rank_end.doubts_of(job.mesh, logs, step)
    if not job.folders:
        return doubts
    return (*doubts, *(doubts_of_devices(logs, step) if job.emulated else unusual(job.mesh, logs, step)))


def _steps(request: GraphRequest, step: int, *, is_emulated: bool) -> list[int]:
    """Those whose medians count, the step itself last."""
    if not is_emulated:
        return [step]
    if request.step is None:
        return list(range(max(min(1, step), step - MOST_STEPS + 1), step + 1))
    return [*[each for each in request.like_it if each != step][-MOST_STEPS + 1 :], step]


def check_it_ends(graph: JobGraph) -> None:
    """UsageError where ranks wait for each other in a circle, even if no message waits for its receiver."""
    simulate(graph, replace(ideal(), eager_bytes=_ANY_SIZE), keep=Keep.NONE)


def never_waited_for(logs: Mapping[int, RankLog], step: int) -> Iterator[str]:
    """Of emulated ranks, whose logs have each wait: what they issued in this step and never waited for."""
    ranks: dict[str, list[int]] = {}
    for rank, log in sorted(logs.items()):
        for call in log.collectives:
            in_python = bool(call.frames) and call.frames[0].filename.endswith(_PYTHON_CALLER)
            may_be_waited_for = in_python and (call.is_async or call.is_p2p)
            if call.moment.step == step and may_be_waited_for and call.time_waited_ns is None:
                at = f" at {call.source}" if call.source is not None else ""
                ranks.setdefault(f"{call.name}{at}", []).append(rank)
    for what, found in ranks.items():
        who = rank_end.say_ranks(found, "never waits", "never wait")
        yield f"the result of {what} when it is used: {who} for it in the logs"


def _check_step(
    step: int,
    told: Mapping[int, Mapping[int, Iteration]],
    recorded: Mapping[int, Entries],
    of_all: Callable[[Mapping[int, Entries]], JobGraph],
) -> None:
    """An earlier step, where ranks issued something else in it than in the one that the graph is of."""
    by_rank = {rank: each[step].entries for rank, each in told.items() if step in each}
    if len(by_rank) < len(told) or all(same_shape(entries, recorded[rank]) for rank, entries in by_rank.items()):
        return
    try:
        of_all(by_rank)
    except UsageError as error:
        raise type(error)(
            f"in step {step}, before the step of the graph: {error}",
            hint=f"{error.hint}; or choose a complete step with --step",
        ) from error


def _checked(logs: Mapping[int, RankLog], classes: RankClasses | None) -> dict[int, RankLog]:
    """Of the second members of classes."""
    checked = () if classes is None else [rank for each in classes.classes for rank in each.checked_with]
    return {rank: logs[rank] for rank in checked if rank in logs}


def _told(log: RankLog, mesh: Mesh, steps: Sequence[int], provenance: Provenance) -> dict[int, Iteration]:
    """By step; the last one must be there."""
    waits = displaced(log)
    return {
        each: Iteration(entries=iteration_of(log, mesh, each, provenance), displaced=waits.get(each, 0.0))
        for each in steps
        if each == steps[-1] or recorded_step(log, each) is not None
    }


def _usual(
    log: RankLog, mesh: Mesh, folder: Path | None, told: Mapping[int, Iteration], provenance: Provenance
) -> Entries:
    """The last of the steps as it usually goes, with its own operators and memory where they were traced."""
    iterations = list(told.values())
    times = typical_iteration(iterations)
    if folder is None or not is_trace(folder / RANK_MEMORY):
        return times
    parts = iteration_of(log, mesh, list(told)[-1], provenance, folder)
    return parts if times is iterations[0].entries else shared_out(times, parts)


def iteration_of(
    log: RankLog,
    mesh: Mesh,
    step: int | None = None,
    provenance: Provenance = Provenance.REAL,
    folder: Path | None = None,
) -> Entries:
    """What one rank did in this step, in the last whole one if none is given. `folder`: with the operators and the
    memory of the trace that lies in it, if one does."""
    step = last_whole_step([log]) if step is None else step
    recorded = recorded_step(log, step)
    if recorded is None:
        raise UsageError(
            f"{mesh.say(log.rank)} issued nothing in step {step}: its log ends {rank_end.where_it_ended(log)}",
            hint="choose a step that all ranks executed, or let the program run longer: this rank ends early",
        )
    traced = None if folder is None else traced_in(folder / RANK_MEMORY, log, recorded)
    source = Source(
        computed=provenance, split=provenance, from_ns=recorded.from_ns, until_ns=recorded.until_ns, traced=traced
    )
    return entries_of(recorded.graph, mesh, source)


def _log_in(folder: Path, rank: int, newest_bytes: int | None) -> RankLog:
    log = read_log(folder, newest_bytes)
    if log.rank != rank:
        raise CapsuleError(f"the log in {folder} is of rank {log.rank}", hint="record it again: the log is damaged")
    return log


def _log_of(logs: Mapping[int, RankLog], base: int, run: RunFolder) -> RankLog:
    if base not in logs:
        raise UsageError(
            f"{run.path} contains no log of rank {base}, which represents others",
            hint="emulate it again, with --classes",
        )
    return logs[base]


def _mesh_of(run: RunFolder, emulated: object) -> Mesh:
    sizes = emulated.get("mesh") if isinstance(emulated, dict) else None
    if not isinstance(sizes, dict):
        raise UsageError(f"the mesh of {run.path} is unknown", hint="give --mesh, as in --mesh pp=2,dp=4")
    return Mesh.parse(",".join(f"{name}={size}" for name, size in sizes.items()))
