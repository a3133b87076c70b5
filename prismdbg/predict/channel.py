"""Who communicates with whom, said by mesh axes so that it is the same text on every rank of a class.

tp   dp,cp   world        the ranks that differ in these axes only
pp[0,15]                  of an axis only these coordinates
pp+1   pp-1               the neighbour at this distance along the axis, around its end
dp#grads                  a second group over the same ranks, or a tag
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from prismdbg.errors import UsageError
from prismdbg.predict.mesh import Mesh

_TAG = r"(?:#([A-Za-z0-9_.:-]+))?"
_TOWARD = re.compile(rf"([A-Za-z_][A-Za-z0-9_]*)([+-][0-9]{{1,9}}){_TAG}")
_ACROSS = re.compile(rf"([A-Za-z_][A-Za-z0-9_]*(?:,[A-Za-z_][A-Za-z0-9_]*)*)(?:\[([0-9,]+)\])?{_TAG}")
WORLD = "world"


@dataclass(frozen=True, slots=True, kw_only=True)
class Across:
    """A group for each place outside `axes`. `members`: of the one axis only these coordinates; empty for all."""

    axes: tuple[str, ...]
    members: tuple[int, ...] = ()
    tag: str = ""

    def __str__(self) -> str:
        members = f"[{','.join(map(str, self.members))}]" if self.members else ""
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
            f"{text!r} names no ranks of the mesh {mesh}", hint="write axes (tp or dp,cp), pp[0,15], pp+1, or world"
        )
    return _across(mesh, match, text)


def _toward(mesh: Mesh, axis: str, offset: int, tag: str, text: str) -> Toward:
    normal = offset % mesh.size(axis)
    if not normal:
        raise UsageError(
            f"{text!r} is each rank itself: {axis} has size {mesh.size(axis)}",
            hint="leave out what a rank would send to itself",
        )
    return Toward(axis=axis, offset=normal, tag=tag)


def _across(mesh: Mesh, match: re.Match[str], text: str) -> Across:
    named = match[1].split(",")
    axes = mesh.names if named == [WORLD] and WORLD not in mesh.names else tuple(named)
    axes = tuple(sorted(axes, key=mesh.axis))
    if len(set(axes)) != len(axes):
        raise UsageError(f"{text!r} names an axis twice", hint="name each axis once")
    members = tuple(sorted({int(part) for part in (match[2] or "").split(",") if part}))
    if members and len(axes) != 1:
        raise UsageError(f"{text!r} chooses coordinates of several axes", hint="choose coordinates of one axis")
    if members and members[-1] >= mesh.size(axes[0]):
        raise UsageError(f"{text!r}: {axes[0]} has size {mesh.size(axes[0])}", hint="coordinates count from 0")
    if len(members) == (mesh.size(axes[0]) if axes else 0):
        members = ()
    return Across(axes=axes, members=members, tag=match[3] or "")
