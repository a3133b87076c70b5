"""A recorded rank's groups and peers, named by mesh axes so that it is the same text on every rank of a class."""

from __future__ import annotations

from itertools import product

from prismdbg.errors import UsageError
from prismdbg.model.collective import Group
from prismdbg.rank_graph.node import Node
from prismdbg.rank_graph.slice import GraphSlice
from prismdbg.simulate.graph.channel import in_runs
from prismdbg.simulate.graph.mesh import Mesh


class Channels:
    """Of one rank. UsageError where a group or a peer lies along no axis of the mesh."""

    def __init__(self, graph: GraphSlice, mesh: Mesh) -> None:
        self._rank, self._groups, self._mesh = graph.rank, graph.groups, mesh
        self._in_use = {node.identity.group for node in graph.nodes if not node.is_p2p}
        self._named: dict[str, str] = {}

    def of(self, node: Node) -> str:
        return self._peer(node) if node.is_p2p else self._group(node)

    def _group(self, node: Node) -> str:
        """A second group over the same ranks is another channel."""
        name = node.identity.group
        if name not in self._named:
            text = self._along_axes(node, self._groups[name])
            same = self._before(name, text)
            self._named[name] = f"{text}#{same}" if same else text
        return self._named[name]

    def _before(self, name: str, text: str) -> int:
        """How many groups over the same ranks come before it: where torch has numbered them, by that number, for ranks
        may use them in another order; else by use."""
        same = [each for each in self._in_use if set(self._groups[each].ranks) == set(self._groups[name].ranks)]
        if all(each.isdecimal() for each in same):
            return sorted(same, key=int).index(name)
        return sum(1 for known in self._named.values() if known.partition("#")[0] == text)

    def _along_axes(self, node: Node, group: Group) -> str:
        try:
            return channel_of(group, self._mesh)
        except UsageError as error:
            raise UsageError(f"{self._said(node)} on a group that the mesh lacks: {error}", hint=error.hint) from error

    def _said(self, node: Node) -> str:
        at = f" at {node.source}" if node.source else ""
        return f"{self._mesh.say(self._rank)} issues {node.name} ({node.moment}){at}"

    def _peer(self, node: Node) -> str:
        group = self._groups[node.identity.group]
        number = node.source_rank if node.identity.peer < 0 else node.identity.peer
        if not 0 <= number < group.size:
            raise UsageError(
                f"{self._said(node)}, whose peer is unknown", hint="record the job until the message is received"
            )
        own, there = (self._mesh.coordinates(rank) for rank in (self._rank, group.ranks[number]))
        differ = [name for name in self._mesh.names if own[name] != there[name]]
        if len(differ) != 1:
            raise UsageError(
                f"{self._said(node)}, {'to' if node.op == 'send' else 'from'} {self._mesh.say(group.ranks[number])}: "
                "no neighbour along one axis",
                hint="give the mesh that the job was started with",
            )
        (axis,) = differ
        away = _the_short_way(there[axis] - own[axis], self._mesh.size(axis))
        return f"{axis}{away:+d}" + (f"#{node.tag}" if node.tag else "")


def _the_short_way(away: int, size: int) -> int:
    """Around the axis' end, so that all ranks of a ring say the same. Half of it around stays as it was said."""
    if 2 * abs(away) <= size:
        return away
    return away - size if away > 0 else away + size


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
    return f"{axes[0]}[{in_runs(values[axes[0]])}]"


def _unexplained(group: Group, mesh: Mesh) -> UsageError:
    if not group.ranks:
        return UsageError(
            f"the members of group {group.title!r} are not known",
            hint="give files that list the members of groups; of Chakra traces, put comm_groups.json beside them",
        )
    shown = ", ".join(map(str, group.ranks[:6])) + (", ..." if group.size > 6 else "")
    return UsageError(
        f"group {group.title!r} (ranks {shown}) is not aligned with axes of the mesh {mesh}",
        hint="give the mesh that the job was started with; an axis can be split in two",
    )
