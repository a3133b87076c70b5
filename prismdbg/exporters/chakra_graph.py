"""A job graph as Chakra execution traces, one file a rank: computations, calls, and what waits for what.

Entries of one stream follow each other. A call begins when the stream that issues it and its own stream have come to
it; a stream that waits for a call goes on after it. Memory is not written.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import product
from pathlib import Path
from typing import Any
from zlib import crc32

from prismdbg.errors import UsageError
from prismdbg.exporters.chakra import GROUPS_FILE, NAME, TYPES
from prismdbg.importers.chakra_schema import (
    COLLECTIVE,
    COLLECTIVES,
    COMP,
    RECV,
    SEND,
    SUFFIX,
    VERSION,
    messages,
    prefixed,
)
from prismdbg.model.meanwhile import one_by_one
from prismdbg.model.ops import OPS
from prismdbg.simulate.graph import channel
from prismdbg.simulate.graph.channel import Across, Toward
from prismdbg.simulate.graph.entries import FREE, Entries, Kind
from prismdbg.simulate.graph.job_graph import JobGraph, position
from prismdbg.simulate.graph.mesh import Mesh
from prismdbg.simulate.quantities import MILLION

MOST_RANKS = 4096
_NS_PER_US = 1000
_TYPES = {spec.label: TYPES[spec.movement] for spec in OPS.values() if spec.movement in TYPES}


@dataclass(slots=True)
class _Groups:
    """Numbers from 1, by tag and members."""

    numbers: dict[tuple[str, tuple[int, ...]], int] = field(default_factory=dict)

    def number(self, tag: str, members: tuple[int, ...]) -> int:
        return self.numbers.setdefault((tag, members), len(self.numbers) + 1)


def write_graph(graph: JobGraph, folder: Path, ranks: Sequence[int] = ()) -> int:
    """`chakra.RANK.et` for each of `ranks` (all, if none is given), and `comm_groups.json`, in `folder`, which exists.
    Returns the number of nodes. `UsageError` for more than `MOST_RANKS`, and for a collective of no known kind."""
    chosen = tuple(graph.mesh.check_rank(rank) for rank in ranks) or tuple(range(graph.mesh.world))
    if len(chosen) > MOST_RANKS:
        raise UsageError(
            f"{len(chosen)} ranks would be as many files, more than {MOST_RANKS}", hint="choose some with --rank"
        )
    groups, count = _Groups(), 0
    for rank in one_by_one(chosen, "writing the traces of ranks"):
        with (folder / f"{NAME}.{rank}{SUFFIX}").open("wb") as file:
            metadata = messages().metadata(version=VERSION)
            metadata.attr.add(name="producer", string_val="prismdbg")
            metadata.attr.add(name="rank", int64_val=rank)
            file.write(prefixed(metadata))
            for node in _nodes(graph, rank, groups):
                file.write(prefixed(node))
                count += 1
    listed = {str(number): list(members) for (_, members), number in groups.numbers.items()}
    (folder / GROUPS_FILE).write_text(json.dumps(listed, indent=1) + "\n", encoding="utf-8")
    return count


def _nodes(graph: JobGraph, rank: int, groups: _Groups) -> Iterator[Any]:
    """Entry n is node n; one that is no node has none."""
    entries = graph.class_of(rank).entries
    slower = int(graph.compute_ppm_at[position(graph.mesh, rank)])
    after: dict[int, set[int]] = {}  # by stream: what its next entry is after
    for number in range(len(entries)):
        kind, stream = Kind(int(entries.kind[number])), int(entries.stream[number])
        if kind is Kind.WAIT:
            after.setdefault(stream, set()).add(int(entries.target[number]))
        elif kind is Kind.COMPUTE:
            yield _computation(entries, number, after.get(stream, set()), slower)
            after[stream] = {number}
        elif kind is not Kind.MEMORY:
            issuer = int(entries.issuer[number])
            needs = after.get(issuer, set()) | (after.get(stream, set()) if stream != FREE else set())
            yield _call(graph.mesh, rank, entries, number, needs, groups)
            if stream != FREE:
                after[stream] = {number}
            if entries.blocking[number]:
                after.setdefault(issuer, set()).add(number)


def _computation(entries: Entries, number: int, needs: set[int], slower: int) -> Any:
    duration_ns = max(int(entries.duration_ns[number]), 0) * slower // MILLION
    node = messages().node(
        id=number,
        name=entries.texts[entries.label[number]] or "computation",
        type=COMP,
        data_deps=sorted(needs),
        duration_micros=duration_ns // _NS_PER_US,
    )
    node.attr.add(name="is_cpu_op", bool_val=True)
    return node


def _call(mesh: Mesh, rank: int, entries: Entries, number: int, needs: set[int], groups: _Groups) -> Any:
    kind, op = Kind(int(entries.kind[number])), entries.texts[entries.op[number]]
    where = _parsed(entries.channels[entries.channel[number]], mesh)
    node = messages().node(
        id=number,
        name=op,
        type={Kind.SEND: SEND, Kind.RECV: RECV}.get(kind, COLLECTIVE),
        data_deps=sorted(needs),
        duration_micros=max(int(entries.duration_ns[number]), 0) // _NS_PER_US,
    )
    node.attr.add(name="is_cpu_op", bool_val=False)
    size_bytes = int(entries.size_bytes[number])
    if isinstance(where, Toward):
        peer = _moved(mesh, rank, where)
        source, target = (rank, peer) if kind is Kind.SEND else (peer, rank)
        for name, value in (("comm_src", source), ("comm_dst", target), ("comm_tag", _tag(where.tag))):
            node.attr.add(name=name, int32_val=value)
        if mesh.world <= MOST_RANKS:
            node.attr.add(name="pg_name", string_val=str(groups.number("", tuple(range(mesh.world)))))
    else:
        if op not in _TYPES:
            raise UsageError(f"unknown collective {op!r} in the graph", hint="build the graph again")
        members = _members(mesh, rank, where)
        if _TYPES[op] == "ALL_GATHER":  # a graph has what a rank gets, and a trace what it passes in
            size_bytes //= len(members)
        node.attr.add(name="comm_type", int64_val=COLLECTIVES.index(_TYPES[op]))
        node.attr.add(name="pg_name", string_val=str(groups.number(where.tag, members)))
        node.attr.add(name="pg_desc", string_val=str(where))
    node.attr.add(name="comm_size", int64_val=size_bytes)
    if line := entries.texts[entries.line[number]]:
        node.attr.add(name="source", string_val=line)
    return node


@lru_cache(1 << 12)
def _parsed(text: str, mesh: Mesh) -> Across | Toward:
    return channel.parse(text, mesh)


def _moved(mesh: Mesh, rank: int, where: Toward) -> int:
    here = mesh.coordinates(rank)
    return mesh.rank(**here | {where.axis: (here[where.axis] + where.offset) % mesh.size(where.axis)})


def _members(mesh: Mesh, rank: int, where: Across) -> tuple[int, ...]:
    here: Mapping[str, int] = mesh.coordinates(rank)
    along = [where.members or range(mesh.size(axis)) for axis in where.axes]
    places = (dict(zip(where.axes, at, strict=True)) for at in product(*along))
    return tuple(sorted(mesh.rank(**{**here, **place}) for place in places))


def _tag(text: str) -> int:
    """The same number on both sides."""
    return int(text) if text.isdecimal() and len(text) < 9 else crc32(text.encode()) & 0x7FFFFFFF if text else 0
