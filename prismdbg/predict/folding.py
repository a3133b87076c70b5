"""Ranks that issued the same become one class, by the first of them; how much slower each computes becomes a vector."""

from __future__ import annotations

from collections.abc import Hashable, Mapping

import numpy as np

from prismdbg.predict.entries import FREE, Entries, Kind
from prismdbg.predict.job_graph import JobGraph, RankClass
from prismdbg.predict.mesh import Mesh
from prismdbg.predict.quantities import MILLION


def fold(mesh: Mesh, by_rank: Mapping[int, Entries]) -> JobGraph:
    """Of every rank of the mesh. Two ranks are one class only if all they communicated agrees, call by call."""
    members: dict[Hashable, list[int]] = {}
    for rank in sorted(by_rank):
        members.setdefault(shape_of(by_rank[rank]), []).append(mesh.check_rank(rank))
    compute_ppm = np.full(mesh.world, MILLION, dtype=np.int64)
    classes: list[tuple[RankClass, list[int]]] = []
    for ranks in members.values():
        first = by_rank[ranks[0]]
        for rank in ranks:
            compute_ppm[rank] = _slower_ppm(by_rank[rank], first)
        classes.append((RankClass(name=f"as rank {ranks[0]}", entries=first), ranks))
    return JobGraph.build(mesh, classes, compute_ppm=compute_ppm)


def shape_of(entries: Entries) -> Hashable:
    """What it communicated, in order. Where between two calls it waited or computed differs from run to run."""
    names = dict(enumerate(entries.streams)) | {FREE: "free"}
    columns = (entries.kind, entries.stream, entries.issuer, entries.blocking, entries.size_bytes)
    chosen = entries.communicates
    rows = zip(*(column[chosen].tolist() for column in (*columns, entries.channel, entries.op)), strict=True)
    return tuple(
        (kind, names[stream], names[issuer], blocking, size_bytes, entries.channels[channel], entries.texts[op])
        for kind, stream, issuer, blocking, size_bytes, channel, op in rows
    )


def _slower_ppm(entries: Entries, first: Entries) -> int:
    own, reference = (int(e.duration_ns[e.kind == Kind.COMPUTE].sum()) for e in (entries, first))
    return max(own * MILLION // reference, 1) if reference else MILLION
