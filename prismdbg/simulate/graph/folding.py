"""Ranks that issued the same become one class, by the first of them; how much slower each computes becomes a vector."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from itertools import zip_longest

import numpy as np

from prismdbg.simulate.graph.entries import FREE, Entries, Kind
from prismdbg.simulate.graph.job_graph import JobGraph, RankClass, as_rank
from prismdbg.simulate.graph.kinds import Kinds
from prismdbg.simulate.graph.mesh import Mesh
from prismdbg.simulate.quantities import MILLION

_SHAPE = ("kind", "stream", "issuer", "blocking", "size_bytes", "channel", "op", "detail", "splits")


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """The first call in which two ranks differ, counted from 1, as each of them made it."""

    number: int
    one: str
    other: str


def fold(mesh: Mesh, by_rank: Mapping[int, Entries]) -> JobGraph:
    """Of every rank of the mesh. Two ranks are one class only if all they communicated agrees, call by call."""
    shapes: dict[int, Hashable] = {}  # ranks that others stand for share their entries
    members: dict[Hashable, list[int]] = {}
    for rank in sorted(by_rank):
        entries = by_rank[rank]
        if id(entries) not in shapes:
            shapes[id(entries)] = shape_of(entries)
        members.setdefault(shapes[id(entries)], []).append(mesh.check_rank(rank))
    compute_ppm = np.full(mesh.world, MILLION, dtype=np.int64)
    classes: list[tuple[RankClass, list[int]]] = []
    for ranks in members.values():
        first = by_rank[ranks[0]]
        slower: dict[int, int] = {}
        for rank in ranks:
            entries = by_rank[rank]
            if id(entries) not in slower:
                slower[id(entries)] = _slower_ppm(entries, first)
            compute_ppm[rank] = slower[id(entries)]
        classes.append((RankClass(name=as_rank(ranks[0]), entries=first), ranks))
    return JobGraph.build(mesh, classes, compute_ppm=compute_ppm)


def fold_kinds(kinds: Kinds, by_base: Mapping[int, Entries]) -> JobGraph:
    """The whole mesh, each kind of rank by its base. Kinds whose bases did the same are one class."""
    classes: list[RankClass] = []
    known: dict[Hashable, int] = {}
    class_of, ppm_of = [], []
    for base in kinds.bases():
        entries = by_base[base]
        number = known.setdefault(shape_of(entries), len(classes))
        if number == len(classes):
            classes.append(RankClass(name=as_rank(base), entries=entries))
        class_of.append(number)
        ppm_of.append(_slower_ppm(entries, classes[number].entries))
    kind_at = kinds.by_position()
    return JobGraph.placed(
        kinds.mesh, tuple(classes), np.array(class_of)[kind_at], np.array(ppm_of, dtype=np.int64)[kind_at]
    )


def shape_of(entries: Entries) -> Hashable:
    """What it communicated, in order. Where between two calls it waited or computed differs from run to run."""
    return tuple(_rows(entries))


def same_shape(one: Entries, other: Entries) -> bool:
    """Whether their shapes are equal, without making them where that can be seen at once."""
    if all(getattr(one, table) == getattr(other, table) for table in ("streams", "channels", "texts")):
        mine, theirs = one.communicates, other.communicates
        return all(np.array_equal(getattr(one, c)[mine], getattr(other, c)[theirs]) for c in _SHAPE)
    return shape_of(one) == shape_of(other)


def first_difference(one: Entries, other: Entries) -> Difference:
    """Of two ranks whose shapes differ."""
    pairs = enumerate(zip_longest(_rows(one), _rows(other)))
    number = next(number for number, (mine, theirs) in pairs if mine != theirs)
    mine, theirs = (_said(entries, number) for entries in (one, other))
    if mine == theirs:  # of other tensors, from another thread, or one of them waits for it at once
        mine, theirs = (f"{said} ({_how(entries, number)})" for said, entries in ((mine, one), (theirs, other)))
    return Difference(number=number + 1, one=mine, other=theirs)


def _rows(entries: Entries) -> list[tuple[object, ...]]:
    names = dict(enumerate(entries.streams)) | {FREE: "free"}
    columns = (entries.kind, entries.stream, entries.issuer, entries.blocking, entries.size_bytes)
    chosen = entries.communicates
    texts = (entries.channel, entries.op, entries.detail, entries.splits)
    rows = zip(*(column[chosen].tolist() for column in (*columns, *texts)), strict=True)
    return [
        (
            kind,
            names[stream],
            names[issuer],
            blocking,
            size_bytes,
            entries.channels[channel],
            entries.texts[op],
            entries.texts[detail],
            entries.texts[splits],
        )
        for kind, stream, issuer, blocking, size_bytes, channel, op, detail, splits in rows
    ]


def _said(entries: Entries, number: int) -> str:
    places = np.flatnonzero(entries.communicates)
    return entries.say(int(places[number])) if number < len(places) else "nothing"


def _how(entries: Entries, number: int) -> str:
    place = np.flatnonzero(entries.communicates)[number]
    is_waited_for = "waited for" if entries.blocking[place] else "asynchronous"
    splits = entries.texts[entries.splits[place]]
    parts = (
        splits and f"bytes sent>received {splits}",
        entries.texts[entries.detail[place]],
        f"on {entries.streams[entries.issuer[place]]}",
        is_waited_for,
    )
    return ", ".join(filter(None, parts))


def _slower_ppm(entries: Entries, first: Entries) -> int:
    own, reference = (int(e.duration_ns[e.kind == Kind.COMPUTE].sum()) for e in (entries, first))
    return max(own * MILLION // reference, 1) if reference else MILLION
