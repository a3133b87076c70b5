"""The execution graph of one iteration from the logs of a run: of every rank, or of some that stand for others."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from prismdbg.capsule.log_reader import RankLog, read_log
from prismdbg.errors import UsageError
from prismdbg.graph.slice import build_slice
from prismdbg.model.moment import Moment
from prismdbg.predict.entries import Entries, Provenance
from prismdbg.predict.folding import fold, shape_of
from prismdbg.predict.job_graph import JobGraph
from prismdbg.predict.mesh import Mesh
from prismdbg.workflows.run_folder import RunFolder, rank_of, read_json
from prismdbg.workflows.slice_entries import entries_of

_LAST_COLLECTIVE = 10**17


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphRequest:
    """`alike`: ranks that differ along these axes only are taken to do the same. step: None for the last whole one."""

    run: Path
    mesh: Mesh | None = None
    alike: tuple[str, ...] = ()
    step: int | None = None


def build_graph(request: GraphRequest) -> JobGraph:
    run = RunFolder.existing(request.run)
    emulated = read_json(run.run_json).get("emulated")
    mesh = request.mesh or _mesh_of(run, emulated)
    logs = {rank_of(folder): read_log(folder) for folder in run.rank_folders()}  # a later attempt replaces an earlier
    if not logs:
        raise UsageError(f"{run.path} holds no rank's log", hint="give the folder that record or emulate wrote")
    step = _last_whole_step(logs.values()) if request.step is None else request.step
    here = Provenance.REAL if emulated else Provenance.RECORDED
    recorded: dict[int, Entries] = {}
    for rank, log in logs.items():
        graph = build_slice(log, Moment(step), Moment(step, _LAST_COLLECTIVE))
        if not graph.nodes:
            raise UsageError(
                f"{mesh.say(rank)} issued nothing in step {step}", hint="choose a step that all ranks took"
            )
        recorded[rank] = entries_of(graph, mesh, provenance=here, until_ns=_next_step_ns(log, step) - graph.begins_ns)
    return fold(mesh, spread(mesh, recorded, request.alike))


def spread(mesh: Mesh, recorded: dict[int, Entries], alike: Sequence[str]) -> dict[int, Entries]:
    """What was recorded, and for every other rank what one did that differs from it along these axes only."""
    others = [name for name in mesh.names if name not in [mesh.names[mesh.axis(axis)] for axis in alike]]
    by_role: dict[tuple[int, ...], int] = {}
    for rank in sorted(recorded):
        place = mesh.coordinates(rank)
        first = by_role.setdefault(tuple(place[name] for name in others), rank)
        if alike and shape_of(recorded[rank]) != shape_of(recorded[first]):
            raise UsageError(
                f"{mesh.say(first)} and {mesh.say(rank)} issued other collectives, so ranks are not alike along "
                f"{', '.join(alike)}",
                hint="name fewer axes",
            )
    found = dict(recorded)
    for rank in range(mesh.world):
        place = mesh.coordinates(rank)
        stands_in = by_role.get(tuple(place[name] for name in others))
        if rank not in found and stands_in is not None:
            found[rank] = recorded[stands_in]
    return found


def _mesh_of(run: RunFolder, emulated: object) -> Mesh:
    sizes = emulated.get("mesh") if isinstance(emulated, dict) else None
    if not isinstance(sizes, dict):
        raise UsageError(f"the mesh of {run.path} is not known", hint="give --mesh, as in --mesh pp=2,dp=4")
    return Mesh.parse(",".join(f"{name}={size}" for name, size in sizes.items()))


def _next_step_ns(log: RankLog, step: int) -> int:
    """When this rank first communicated after the step, so that an iteration goes from there to there; else 0."""
    return min((c.time_created_ns for c in log.collectives if c.moment.step > step), default=0)


def _last_whole_step(logs: Iterable[RankLog]) -> int:
    """Of the steps after which every rank went on; the only one there is, where none did."""
    last = min(max((c.moment.step for c in log.collectives), default=0) for log in logs)
    return max(last - 1, 0)
