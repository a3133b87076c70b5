"""A rank that starts later: its class begins with computations that take no time, and are delayed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from prismdbg.simulate.engine.changes import Delay
from prismdbg.simulate.graph.entries import COMPUTE_STREAM, DTYPES, PROVENANCES, Entries, Kind, Provenance
from prismdbg.simulate.graph.job_graph import JobGraph, position
from prismdbg.simulate.graph.mesh import Ints

_LABEL = "start"


def with_starts(
    graph: JobGraph, entries: Sequence[Entries], delays: Sequence[Delay]
) -> tuple[list[Entries], list[Ints], list[Delay]]:
    """Entries and turns of each class, and the delays, all of them of entries."""
    class_of = {delay.rank: int(graph.class_at[position(graph.mesh, delay.rank)]) for delay in delays}
    late = {class_of[delay.rank] for delay in delays if delay.entry is None}
    begun = [_begun(each) if number in late else each for number, each in enumerate(entries)]
    added = [len(after) - len(before) for before, after in zip(entries, begun, strict=True)]
    turns = [np.pad(each, (count, 0)) for each, count in zip(graph.stitching.turns, added, strict=True)]
    moved = [replace(delay, entry=entry) for delay in delays for entry in _delayed(delay, added[class_of[delay.rank]])]
    return begun, turns, moved


def _delayed(delay: Delay, added: int) -> Sequence[int]:
    return range(added) if delay.entry is None else (delay.entry + added,)


def _begun(entries: Entries) -> Entries:
    """With a computation on each stream that goes on without another one."""
    alone = (entries.kind == Kind.COMPUTE) | (entries.kind == Kind.WAIT)
    own = [[COMPUTE_STREAM], entries.stream[alone], entries.issuer[entries.communicates]]
    streams = np.unique(np.concatenate(own))
    count, empty = len(streams), len(entries.texts)
    head: dict[str, int] = dict.fromkeys(DTYPES, 0) | dict.fromkeys(("op", "line", "detail", "splits"), empty)
    head |= {"label": empty + 1, "channel": -1, "target": -1, "provenance": PROVENANCES.index(Provenance.ASSUMED)}
    head["kind"] = Kind.COMPUTE
    columns: dict[str, Any] = {
        name: np.concatenate([np.full(count, head[name], dtype), getattr(entries, name)])
        for name, dtype in DTYPES.items()
    }
    columns["stream"][:count] = streams
    columns["target"][count:][entries.kind == Kind.WAIT] += count
    return replace(entries, **columns, texts=(*entries.texts, "", _LABEL))
