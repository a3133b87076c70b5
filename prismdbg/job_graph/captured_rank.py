"""A captured rank's step as entries of a job graph: its calls and times from the log, what ran between them by a traced
replay; alone, taken as what other ranks did too, or in the place of that rank in another graph.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from prismdbg.capsule.capsule_dir import Capsule
from prismdbg.capsule.log.events import RankLog
from prismdbg.capsule.manifest import Manifest, Origin
from prismdbg.errors import RankLost, UsageError
from prismdbg.job_graph.recorded_step import RecordedStep, check_computed, recorded_step, traced_in
from prismdbg.job_graph.replicated_ranks import replicate
from prismdbg.job_graph.slice_entries import Source, entries_of
from prismdbg.jobs.capture.packed_memory import whole_trace
from prismdbg.jobs.replay.memory_trace import traced_replay
from prismdbg.jobs.replay.replay import ReplayRequest, Say
from prismdbg.jobs.replay.verdict import Outcome
from prismdbg.jobs.storage.archive_crypto import NO_KEYS, Keys
from prismdbg.jobs.storage.pack import opened
from prismdbg.log.rank_log import read_log
from prismdbg.memory.traced_step import TracedStep, traced_step
from prismdbg.model.moment import Moment
from prismdbg.simulate.graph import origin
from prismdbg.simulate.graph.entries import Entries, Provenance
from prismdbg.simulate.graph.folding import first_difference, shape_of
from prismdbg.simulate.graph.job_graph import JobGraph, RankClass, position
from prismdbg.simulate.graph.mesh import Mesh

WORLD = "world"


@dataclass(frozen=True, slots=True, kw_only=True)
class CapturedRequest:
    """`step`: None for the last whole one. replay: False where nothing is to be run; then operators and memory are
    known only where they were recorded (`record --memory`). keys: with what a sealed capsule is read."""

    capsule: Path
    keys: Keys = NO_KEYS
    step: int | None = None
    replay: bool = True
    runtime: str = ""
    allow_writes: bool = False
    timeout_s: float = 3600.0


def captured_graph(request: CapturedRequest, mesh: Mesh | None, alike: Sequence[str], say: Say) -> JobGraph:
    """The captured rank, and every rank that differs from it along `alike` only as if it had done the same."""
    with opened(request.capsule, request.keys) as capsule:
        mesh = _mesh_of(capsule.manifest, mesh)
        rank = capsule.manifest.rank

        def job(entries: Entries) -> JobGraph:
            found = replicate(mesh, {rank: entries}, alike)
            return JobGraph.build(mesh, [(RankClass(name=f"as captured rank {rank}", entries=entries), found)])

        graph = job(_entries(capsule, mesh, request, say, job))
    standing = np.full(mesh.world, origin.Standing.ASSUMED, dtype=np.uint8)
    standing[position(mesh, rank)] = origin.Standing.OWN
    return replace(graph, origin=origin.Origin(source=origin.Source.RECORDED, standing_at=standing))


def with_captured(graph: JobGraph, request: CapturedRequest, say: Say, mesh: Mesh | None = None) -> JobGraph:
    """`graph` with the captured rank in its place. UsageError names the first call in which it is not of the class that
    it was of there.

    mesh: of the captured job, where the graph was stretched; the rank is put at the same coordinates.
    """
    with opened(request.capsule, request.keys) as capsule:
        mesh = _mesh_of(capsule.manifest, mesh or graph.mesh)
        rank = capsule.manifest.rank
        place = graph.mesh.rank(**mesh.coordinates(rank))
        before = graph.class_of(place)

        def check(entries: Entries) -> None:
            if shape_of(entries) != shape_of(before.entries):
                found = first_difference(entries, before.entries)
                raise UsageError(
                    f"captured {mesh.say(rank)} does not match its class {before.name!r} in the run: "
                    f"call #{found.number} is {found.one} in the capsule and {found.other} in the run",
                    hint="use a capsule and a run of one program with the same options, and equal steps",
                )

        entries = _entries(capsule, mesh, request, say, check)
    return graph.with_rank(place, RankClass(name=f"captured rank {rank}", entries=entries))


def _mesh_of(manifest: Manifest, mesh: Mesh | None) -> Mesh:
    """One axis, where none are named: groups of some ranks only are then told to be unexplained."""
    if mesh is None:
        return Mesh.parse(f"{WORLD}={manifest.world_size}")
    mesh.check_world(manifest.world_size)
    return mesh


def _entries(
    capsule: Capsule, mesh: Mesh, request: CapturedRequest, say: Say, check: Callable[[Entries], object]
) -> Entries:
    """`check`: told what the log alone says, before anything is run."""
    log, manifest = read_log(capsule.log), capsule.manifest
    step = _chosen(manifest, log, request.step)
    recorded = recorded_step(log, step)
    if recorded is None:
        raise UsageError(f"rank {manifest.rank} issued nothing in step {step}", hint="choose another with --step")
    if not manifest.emulated:
        check_computed(log, step)
    source = Source(split=Provenance.REPLAYED, from_ns=recorded.from_ns, until_ns=recorded.until_ns)
    entries = entries_of(recorded.graph, mesh, source)
    check(entries)
    found = _packed(capsule, log, recorded)
    if request.replay:
        replayed = _traced(capsule, recorded, request, say)
        if replayed is not None and found is not None:  # a rank that was traced knows its older blocks in a replay, too
            replayed = replace(replayed, is_whole=found.is_whole)
        return entries_of(recorded.graph, mesh, replace(source, traced=replayed))
    return entries_of(recorded.graph, mesh, replace(source, traced=found, split=Provenance.RECORDED))


def _packed(capsule: Capsule, log: RankLog, recorded: RecordedStep) -> TracedStep | None:
    """Of the trace that was recorded with the rank. It does not tell where works were waited for."""
    folder = whole_trace(capsule)
    if folder is None:
        return None
    return traced_in(folder, log, recorded)


def _traced(capsule: Capsule, recorded: RecordedStep, request: CapturedRequest, say: Say) -> TracedStep | None:
    """The replay goes on to the first call after the step, so that all of the step has run. Where the step is the last
    one of the capsule, that call is after the end moment: the replay goes on to it by itself."""
    after = Moment(recorded.step + 1, 1)
    replayed = traced_replay(
        ReplayRequest(capsule=capsule, runtime=request.runtime, allow_writes=request.allow_writes),
        say,
        until=after if after <= capsule.manifest.moment_b else None,
        timeout_s=request.timeout_s,
        waits=True,
    )
    if replayed.verdict.outcome in (Outcome.DIVERGED, Outcome.RANK_LOST):
        raise RankLost(
            f"the replay is not identical to the recorded run: {replayed.verdict.summary}",
            hint="see `prismdbg replay`; --no-replay builds the graph from the log alone",
        )
    return traced_step(replayed.trace, recorded.step)


def _chosen(manifest: Manifest, log: RankLog, step: int | None) -> int:
    first, last = whole_steps(manifest, log)
    if first > last:
        raise UsageError(
            f"the capsule contains no complete step: it goes from {manifest.moment_a} to {manifest.moment_b}",
            hint="capture with a larger --window",
        )
    if step is not None and not first <= step <= last:
        raise UsageError(
            f"step {step} is not complete in the capsule",
            hint=f"use --step with one of {first} to {last}" if first < last else f"use --step {first}",
        )
    return last if step is None else step


def whole_steps(manifest: Manifest, log: RankLog) -> tuple[int, int]:
    """The first and the last step of which a replay runs all: it goes on from B to the next call, or to its end."""
    b = manifest.moment_b.step
    begun = max([b, *(mark.step for mark in log.steps if mark.step <= b + 1)])
    return manifest.moment_a.step + (manifest.origin is not Origin.START), begun - 1
