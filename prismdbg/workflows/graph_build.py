"""The execution graph of one iteration from the logs of a run: of every rank, or of some that stand for others."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from prismdbg.capsule.log_reader import RankLog, read_log
from prismdbg.capsule.memory_reader import is_trace
from prismdbg.errors import UsageError
from prismdbg.predict.entries import Entries, Provenance
from prismdbg.predict.folding import fold, fold_kinds
from prismdbg.predict.job_graph import JobGraph
from prismdbg.predict.mesh import Mesh
from prismdbg.predict.sharing import shared_out
from prismdbg.predict.usual import Iteration, usual
from prismdbg.rank.config import RANK_MEMORY
from prismdbg.workflows.as_recorded import as_recorded
from prismdbg.workflows.classes_file import read_classes
from prismdbg.workflows.graph_origin import origin_of
from prismdbg.workflows.processor_waits import displaced
from prismdbg.workflows.recorded_step import last_whole_step, recorded_step, traced_in
from prismdbg.workflows.run_folder import RunFolder, rank_of, read_json
from prismdbg.workflows.slice_entries import Source, entries_of
from prismdbg.workflows.spreading import spread

MOST_STEPS = 16  # that go into a median


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphRequest:
    """`alike`: ranks that differ along these axes only are taken to do the same. step: None for the last whole one,
    of an emulation with the medians of the whole ones before it.

    as_recorded: every rank by itself, with the transfers that were recorded, on one clock.
    """

    run: Path
    mesh: Mesh | None = None
    alike: tuple[str, ...] = ()
    step: int | None = None
    as_recorded: bool = False


def build_graph(request: GraphRequest) -> JobGraph:
    run = RunFolder.existing(request.run)
    emulated = read_json(run.run_json).get("emulated")
    mesh = request.mesh or _mesh_of(run, emulated)
    folders = {rank_of(folder): folder for folder in run.rank_folders()}  # a later attempt replaces an earlier
    if not folders:
        raise UsageError(f"{run.path} holds no rank's log", hint="give the folder that record or emulate wrote")
    logs = {rank: read_log(folder) for rank, folder in folders.items()}
    step = last_whole_step(logs.values()) if request.step is None else request.step
    if request.as_recorded:
        return as_recorded(mesh, logs, step, folders)
    provenance = Provenance.REAL if emulated else Provenance.RECORDED
    classes = read_classes(run, mesh) if not request.alike and request.mesh is None else None
    chosen = logs if classes is None else {base: _log_of(logs, base, run) for base in classes.kinds.bases()}
    first = max(min(1, step), step - MOST_STEPS + 1) if emulated and request.step is None else step
    steps = range(first, step + 1)
    recorded = {rank: _usual(log, mesh, steps, provenance, folders[rank]) for rank, log in chosen.items()}
    if classes is None:
        graph = fold(mesh, spread(mesh, recorded, request.alike))
    else:
        graph = fold_kinds(classes.kinds, recorded)
    origin = origin_of(mesh, recorded, logs, step, is_emulated=bool(emulated), classes=classes)
    return replace(graph, origin=origin)


def _usual(log: RankLog, mesh: Mesh, steps: range, provenance: Provenance, folder: Path) -> Entries:
    """The last of the steps as it usually goes, with its own operators and memory where they were traced."""
    last, waits = steps[-1], displaced(log)
    told = [
        Iteration(entries=iteration_of(log, mesh, each, provenance), displaced=waits.get(each, 0.0))
        for each in steps
        if each == last or recorded_step(log, each) is not None
    ]
    times = usual(told)
    if not is_trace(folder / RANK_MEMORY):
        return times
    parts = iteration_of(log, mesh, last, provenance, folder)
    return parts if times is told[0].entries else shared_out(times, parts)


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
            f"{mesh.say(log.rank)} issued nothing in step {step}",
            hint="choose a step that all ranks took; if others issue collectives there, the job hangs in it",
        )
    traced = None if folder is None else traced_in(folder / RANK_MEMORY, log, recorded)
    source = Source(
        computed=provenance, split=provenance, from_ns=recorded.from_ns, until_ns=recorded.until_ns, traced=traced
    )
    return entries_of(recorded.graph, mesh, source)


def _log_of(logs: Mapping[int, RankLog], base: int, run: RunFolder) -> RankLog:
    if base not in logs:
        raise UsageError(
            f"{run.path} holds no log of rank {base}, which stands for others", hint="emulate it again, with --classes"
        )
    return logs[base]


def _mesh_of(run: RunFolder, emulated: object) -> Mesh:
    sizes = emulated.get("mesh") if isinstance(emulated, dict) else None
    if not isinstance(sizes, dict):
        raise UsageError(f"the mesh of {run.path} is not known", hint="give --mesh, as in --mesh pp=2,dp=4")
    return Mesh.parse(",".join(f"{name}={size}" for name, size in sizes.items()))
