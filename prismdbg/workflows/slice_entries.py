"""A recorded rank's slice as entries of the job graph: groups by mesh axes, and what lay between two collectives.

The log does not say when an asynchronous call was waited for: it is taken to be where it completed, so that the
recorded times come out again; until then the thread may have computed or waited, so that this part is assumed.
What it did between its calls else is one computation each, recorded.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

from prismdbg.errors import UsageError
from prismdbg.graph.node import Node
from prismdbg.graph.slice import GraphSlice
from prismdbg.model.collective import Group
from prismdbg.predict.entries import Entries, Provenance
from prismdbg.predict.entry_writer import EntryWriter
from prismdbg.predict.mesh import Mesh
from prismdbg.predict.transfer import OPS


def entries_of(
    graph: GraphSlice, mesh: Mesh, *, provenance: Provenance = Provenance.RECORDED, until_ns: int = 0
) -> Entries:
    """`provenance`: of what was computed. until_ns: the main thread went on so long, as times in the slice count.

    UsageError where a group or a peer lies along no axis of the mesh.
    """
    mesh.check_rank(graph.rank)
    return _Translation(graph, mesh, provenance).entries(until_ns)


def channel_of(group: Group, mesh: Mesh) -> str:
    """The axes in which the members differ."""
    places = [mesh.coordinates(rank) for rank in group.ranks]
    values = {name: sorted({place[name] for place in places}) for name in mesh.names}
    axes = [name for name in mesh.names if len(values[name]) > 1]
    box = {mesh.rank(**dict(zip(values, at, strict=True))) for at in product(*values.values())}
    if box != set(group.ranks) or not places:
        raise _unexplained(group, mesh)
    if not axes:
        return mesh.names[0] + f"[{values[mesh.names[0]][0]}]"
    partial = [name for name in axes if len(values[name]) < mesh.size(name)]
    if not partial:
        return ",".join(axes)
    if len(axes) > 1:
        raise _unexplained(group, mesh)
    return f"{axes[0]}[{','.join(map(str, values[axes[0]]))}]"


def _unexplained(group: Group, mesh: Mesh) -> UsageError:
    shown = ", ".join(map(str, group.ranks[:6])) + (", ..." if group.size > 6 else "")
    return UsageError(
        f"group {group.title!r} (ranks {shown}) lies along no axes of the mesh {mesh}",
        hint="give the mesh the job was started with; an axis may be split in two",
    )


class _Translation:
    def __init__(self, graph: GraphSlice, mesh: Mesh, provenance: Provenance) -> None:
        self._graph, self._mesh, self._provenance = graph, mesh, provenance
        self._writer = EntryWriter()
        self._channels: dict[str, str] = {}
        self._clocks: dict[int, int] = {}  # of each thread: until when its time is told
        self._open: dict[int, list[tuple[int, int]]] = {}  # of each thread: completion, entry

    def entries(self, until_ns: int) -> Entries:
        for node in self._graph.nodes:
            self._until(node.thread, node.issued_ns)
            self._call(node)
        for thread, calls in self._open.items():
            self._until(thread, max((done_ns for done_ns, _ in calls), default=0))
        self._until(0, until_ns)
        return self._writer.done()

    def _call(self, node: Node) -> None:
        line = next((str(frame) for frame in node.frames), "")
        size_bytes = max(node.sent_bytes, node.received_bytes)
        stream = _stream(node.thread)
        if node.is_p2p:
            write = self._writer.send if node.op == "send" else self._writer.recv
            entry = write(self._peer(node), size_bytes, issuer=stream, blocking=False, line=line)
        else:
            channel = self._channel(self._graph.groups[node.identity.group])
            entry = self._writer.collective(
                _operation(node), channel, size_bytes, issuer=stream, blocking=not node.is_async, line=line
            )
        done_ns = node.issued_ns if node.completed_ns is None else node.completed_ns
        if not node.is_p2p and not node.is_async:
            self._clocks[node.thread] = done_ns
        elif node.completed_ns is not None:
            self._open.setdefault(node.thread, []).append((done_ns, entry))

    def _until(self, thread: int, until_ns: int) -> None:
        """Computations up to here, and between them the waits for what completed meanwhile."""
        for done_ns, entry in sorted(self._open.get(thread, ())):
            if done_ns <= until_ns:
                self._compute(thread, done_ns, Provenance.ASSUMED)
                self._writer.wait(entry, stream=_stream(thread))
                self._open[thread].remove((done_ns, entry))
        self._compute(thread, until_ns, self._provenance)

    def _compute(self, thread: int, until_ns: int, provenance: Provenance) -> None:
        taken_ns = until_ns - self._clocks.get(thread, 0)
        if taken_ns > 0:
            self._writer.compute(taken_ns, "program", stream=_stream(thread), provenance=provenance)
            self._clocks[thread] = until_ns

    def _channel(self, group: Group) -> str:
        """A second group over the same ranks is another channel."""
        if group.name not in self._channels:
            text = channel_of(group, self._mesh)
            same = sum(1 for known in self._channels.values() if known.partition("#")[0] == text)
            self._channels[group.name] = f"{text}#{same}" if same else text
        return self._channels[group.name]

    def _peer(self, node: Node) -> str:
        group = self._graph.groups[node.identity.group]
        number = node.source_rank if node.identity.peer < 0 else node.identity.peer
        if not 0 <= number < group.size:
            raise UsageError(
                f"{node.name} at {node.moment} has no known peer", hint="record the job until the message is received"
            )
        own, there = (self._mesh.coordinates(rank) for rank in (self._graph.rank, group.ranks[number]))
        differ = [name for name in self._mesh.names if own[name] != there[name]]
        if len(differ) != 1:
            raise UsageError(
                f"{node.name} at {node.moment} goes to {self._mesh.say(group.ranks[number])}, "
                f"no neighbour of {self._mesh.say(self._graph.rank)} along one axis",
                hint="give the mesh the job was started with",
            )
        return f"{differ[0]}{there[differ[0]] - own[differ[0]]:+d}" + (f"#{node.tag}" if node.tag else "")


def _stream(thread: int) -> str:
    return "compute" if thread == 0 else f"thread {thread}"


def _operation(node: Node) -> str:
    """`all_gather` of `all_gather_into_tensor_coalesced`."""
    return next((op for op in sorted(OPS, key=len, reverse=True) if node.name.startswith(op)), _barrier(node.name))


def _barrier(name: str) -> str:
    return "barrier" if name.endswith("barrier") else name


def slices_by_rank(slices: Sequence[GraphSlice], mesh: Mesh) -> dict[int, Entries]:
    return {graph.rank: entries_of(graph, mesh) for graph in slices}
