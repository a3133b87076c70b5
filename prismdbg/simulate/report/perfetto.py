"""A timeline as a JSON trace that Perfetto and chrome://tracing open. Classes are folded: a process for each cohort.

The process shows the cohort's first rank and says how many it stands for. The critical path is a process of its own: a
thread for each rank on it, and an arrow wherever it goes on to another.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from prismdbg.model.meanwhile import one_by_one
from prismdbg.simulate.engine.critical_path import Part
from prismdbg.simulate.engine.engine import Team
from prismdbg.simulate.engine.timeline import RankTimeline, Timeline
from prismdbg.simulate.graph.entries import FREE, PROVENANCES, Kind

_FREE_THREAD = FREE  # entries without a stream may overlap: as asynchronous slices


def write(timeline: Timeline, path: Path, ranks: Sequence[int] = (), critical: Sequence[Part] = ()) -> None:
    """Streamed: a long iteration is never one text in memory. `ranks`: these too, each as a process of its own."""
    with path.open("w", encoding="utf-8") as file:
        file.write('{"displayTimeUnit":"ns","otherData":' + json.dumps(_about(timeline)) + ',"traceEvents":[\n')
        for number, event in enumerate(events(timeline, ranks, critical)):
            file.write((",\n" if number else "") + json.dumps(event, separators=(",", ":")))
        file.write("\n]}\n")


def events(timeline: Timeline, ranks: Sequence[int] = (), critical: Sequence[Part] = ()) -> Iterator[dict[str, Any]]:
    world = timeline.graph.mesh.world
    if critical:
        yield from _critical(timeline, critical, 2 * world)
    for team in one_by_one(sorted(timeline.teams, key=timeline.first_rank), "writing cohorts of ranks"):
        rank = timeline.first_rank(team)
        yield from _process(timeline.of(rank), _title(timeline, team, rank), rank)
    for rank in ranks:
        yield from _process(timeline.of(rank), timeline.graph.mesh.say(rank), world + rank)


def _critical(timeline: Timeline, parts: Sequence[Part], process: int) -> Iterator[dict[str, Any]]:
    """Parts of a rank that follow each other with one name are one slice."""
    yield _named("process_name", process, 0, "critical path")
    yield _sorted(process, -1)
    threads: dict[int, int] = {}
    flow = 0
    before: tuple[int, Part] | None = None
    for part, end_ns in _joined(parts):
        if part.rank not in threads:
            threads[part.rank] = len(threads)
            yield _named("thread_name", process, threads[part.rank], timeline.graph.mesh.say(part.rank))
        thread = threads[part.rank]
        known = {"cat": "critical path", "pid": process, "tid": thread}
        args = {"entry": part.entry} | {k: v for k, v in (("channel", part.channel), ("line", part.line)) if v}
        slice_ = {
            "ph": "X",
            "name": part.name or "compute",
            "ts": _us(part.start_ns),
            "dur": _us(end_ns - part.start_ns),
        }
        yield {**known, **slice_, "args": args}
        if before is not None and before[0] != thread:
            flow += 1
            arrow = {"name": "continues", "cat": "critical path", "pid": process, "id": flow}
            middle_ns = (before[1].start_ns + part.start_ns) // 2  # within the slice that it comes from
            yield {**arrow, "ph": "s", "tid": before[0], "ts": _us(middle_ns)}
            yield {**arrow, "ph": "f", "bp": "e", "tid": thread, "ts": _us(part.start_ns)}
        before = thread, part


def _joined(parts: Sequence[Part]) -> Iterator[tuple[Part, int]]:
    """The first of those that are one, and when the last of them ends."""
    first: Part | None = None
    end_ns = 0
    for part in parts:
        if first is not None and (part.rank, part.name, part.channel) != (first.rank, first.name, first.channel):
            yield first, end_ns
            first = None
        first, end_ns = first or part, part.end_ns
    if first is not None:
        yield first, end_ns


def _title(timeline: Timeline, team: Team, rank: int) -> str:
    name = timeline.graph.classes[team.crew.cohort.rank_class].name
    size = team.crew.cohort.size
    return f"{name}: {timeline.graph.mesh.say(rank)}" + (f", represents {size:,} ranks" if size > 1 else "")


def _process(of: RankTimeline, title: str, process: int) -> Iterator[dict[str, Any]]:
    yield _named("process_name", process, 0, title)
    yield _sorted(process, process)
    for stream, name in enumerate(of.entries.streams):
        yield _named("thread_name", process, stream, name)
    for entry in np.flatnonzero(of.entries.kind != Kind.MEMORY).tolist():
        yield from _slice(of, entry, process)
    yield from _memory(of, process)


def _slice(of: RankTimeline, entry: int, process: int) -> Iterator[dict[str, Any]]:
    start_ns, end_ns = int(of.start_ns[entry]), int(of.end_ns[entry])
    if start_ns == end_ns:
        return
    entries = of.entries
    kind, stream = Kind(int(entries.kind[entry])), int(entries.stream[entry])
    talks = bool(entries.communicates[entry])
    name = entries.texts[(entries.op if talks else entries.label)[entry]] or kind.name.lower()
    args: dict[str, Any] = {"entry": entry, "provenance": PROVENANCES[int(entries.provenance[entry])]}
    if talks:
        args |= {"channel": entries.channels[entries.channel[entry]], "bytes": int(entries.size_bytes[entry])}
    if line := entries.texts[entries.line[entry]]:
        args["line"] = line
    base = {"name": name, "cat": kind.name.lower(), "pid": process, "ts": _us(start_ns)}
    if stream != FREE:
        yield {**base, "ph": "X", "tid": stream, "dur": _us(end_ns - start_ns), "args": args}
        return
    known = {"tid": _FREE_THREAD, "id": f"{process}.{entry}"}
    yield {**base, **known, "ph": "b", "args": args}
    yield {**base, **known, "ph": "e", "ts": _us(end_ns)}


def _memory(of: RankTimeline, process: int) -> Iterator[dict[str, Any]]:
    held = 0
    for entry in np.flatnonzero(of.entries.kind == Kind.MEMORY).tolist():
        held += int(of.entries.size_bytes[entry])
        at = _us(int(of.start_ns[entry]))
        yield {"ph": "C", "name": "memory", "pid": process, "tid": 0, "ts": at, "args": {"bytes": held}}


def _named(what: str, process: int, thread: int, name: str) -> dict[str, Any]:
    return {"ph": "M", "name": what, "pid": process, "tid": thread, "args": {"name": name}}


def _sorted(process: int, place: int) -> dict[str, Any]:
    return {"ph": "M", "name": "process_sort_index", "pid": process, "tid": 0, "args": {"sort_index": place}}


def _us(time_ns: int) -> float:
    return time_ns / 1000


def _about(timeline: Timeline) -> dict[str, Any]:
    return {
        "mesh": str(timeline.graph.mesh),
        "iteration_ns": timeline.iteration_ns,
        "fidelity": timeline.fidelity.lines(),
    }
