"""Who communicates with whom, said by mesh axes so that it is the same text on every rank of a class.

tp   dp,cp   world        the ranks that differ in these axes only
pp[0,15]                  of an axis only these coordinates; dp[0-31], dp[1-63:2] where they follow each other
pp+1   pp-1               the neighbour at this distance along the axis, around its end
dp#grads                  a second group over the same ranks, or a tag
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from prismdbg.errors import UsageError
from prismdbg.simulate.graph.mesh import Mesh

_TAG = r"(?:#([A-Za-z0-9_.:-]+))?"
_TOWARD = re.compile(rf"([A-Za-z_][A-Za-z0-9_]*)([+-][0-9]{{1,9}}){_TAG}")
_ACROSS = re.compile(rf"([A-Za-z_][A-Za-z0-9_]*(?:,[A-Za-z_][A-Za-z0-9_]*)*)(?:\[([0-9,:-]+)\])?{_TAG}")
_RUN = re.compile(r"([0-9]{1,8})(?:-([0-9]{1,8})(?::([0-9]{1,8}))?)?")
_LEAST_RUN = 3
WORLD = "world"


@dataclass(frozen=True, slots=True, kw_only=True)
class Across:
    """A group for each place outside `axes`. `members`: of the one axis only these coordinates; empty for all."""

    axes: tuple[str, ...]
    members: tuple[int, ...] = ()
    tag: str = ""

    def __str__(self) -> str:
        members = f"[{in_runs(self.members)}]" if self.members else ""
        return f"{','.join(self.axes)}{members}{'#' + self.tag if self.tag else ''}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Toward:
    """One peer for each rank: `offset` is taken modulo the axis, 1 up to its size less one."""

    axis: str
    offset: int
    tag: str = ""

    def __str__(self) -> str:
        return f"{self.axis}{self.offset:+d}{'#' + self.tag if self.tag else ''}"

    def back(self, mesh: Mesh) -> Toward:
        """The same channel as the peer names it."""
        return Toward(axis=self.axis, offset=mesh.size(self.axis) - self.offset, tag=self.tag)


Channel = Across | Toward


def parse(text: str, mesh: Mesh) -> Channel:
    """Normal form on this mesh, so that two texts that mean the same are equal."""
    if (match := _TOWARD.fullmatch(text)) is not None:
        return _toward(mesh, match[1], int(match[2]), match[3] or "", text)
    if (match := _ACROSS.fullmatch(text)) is None:
        raise UsageError(
            f"{text!r} is not a set of ranks of the mesh {mesh}",
            hint="write axes (tp or dp,cp), pp[0,15], pp+1, or world",
        )
    return _across(mesh, match, text)


def _toward(mesh: Mesh, axis: str, offset: int, tag: str, text: str) -> Toward:
    normal = offset % mesh.size(axis)
    if not normal:
        raise UsageError(
            f"{text!r} is the rank itself: {axis} has size {mesh.size(axis)}",
            hint="leave out sends of a rank to itself",
        )
    return Toward(axis=axis, offset=normal, tag=tag)


def _across(mesh: Mesh, match: re.Match[str], text: str) -> Across:
    named = match[1].split(",")
    axes = mesh.names if named == [WORLD] and WORLD not in mesh.names else tuple(named)
    axes = tuple(sorted(axes, key=mesh.axis))
    if len(set(axes)) != len(axes):
        raise UsageError(f"{text!r} contains an axis twice", hint="write each axis once")
    if match[2] and len(axes) != 1:
        raise UsageError(f"{text!r} chooses coordinates of several axes", hint="choose coordinates of one axis")
    members = _chosen(match[2], mesh, axes[0], text) if match[2] else ()
    if len(members) == (mesh.size(axes[0]) if axes else 0):
        members = ()
    return Across(axes=axes, members=members, tag=match[3] or "")


def in_runs(members: Sequence[int]) -> str:
    """Rising numbers: `0,15`, `0-31`, `1-63:2`. Half of 8,192 ranks are no longer than two of them."""
    found, at = [], 0
    while at < len(members):
        step = members[at + 1] - members[at] if at + 1 < len(members) else 1
        end = at
        while end + 1 < len(members) and members[end + 1] - members[end] == step:
            end += 1
        if end - at + 1 < _LEAST_RUN:
            end = at
        by = f":{step}" if step > 1 else ""
        found.append(f"{members[at]}-{members[end]}{by}" if end > at else str(members[at]))
        at = end + 1
    return ",".join(found)


def _chosen(runs: str, mesh: Mesh, axis: str, text: str) -> tuple[int, ...]:
    chosen: set[int] = set()
    for run in filter(None, runs.split(",")):
        if (match := _RUN.fullmatch(run)) is None:
            raise UsageError(f"{text!r}: {run!r} is not a coordinate", hint="write pp[0,15], dp[0-31] or dp[1-63:2]")
        first, last = int(match[1]), int(match[2] or match[1])
        if last >= mesh.size(axis):
            raise UsageError(f"{text!r}: {axis} has size {mesh.size(axis)}", hint="count coordinates from 0")
        chosen.update(range(first, last + 1, max(int(match[3] or 1), 1)))
    return tuple(sorted(chosen))
