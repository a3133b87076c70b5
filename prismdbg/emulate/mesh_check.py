"""Whether the mesh that a user named is the one by which the program made its groups. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from itertools import pairwise

from prismdbg.errors import UsageError
from prismdbg.job_graph.slice_channels import channel_of
from prismdbg.model.collective import Group
from prismdbg.model.plurals import counted
from prismdbg.settings.mesh_axes import Axes
from prismdbg.simulate.graph.mesh import Mesh

_SHOWN = 6
_SHOWN_GROUPS = 3
_DEVICE_MESH = "mesh_"  # how torch's DeviceMesh describes the group of a dimension
_WORDS = {"TENSOR": "tp", "PIPELINE": "pp", "DATA": "dp", "CONTEXT": "cp", "EXPERT": "ep"}
_PARALLEL_GROUP = "_PARALLEL_GROUP"  # Megatron's


@dataclass(frozen=True, slots=True)
class _Row:
    """Ranks at equal distances: `size` of them, `stride` apart."""

    stride: int
    size: int


def check_mesh(mesh: Mesh, groups: Iterable[Group]) -> None:
    """UsageError where a group that the program gave an axis's name lies along other ranks than that axis, or where
    groups are whole axes of another mesh only; with the axes that fit."""
    used = [group for group in groups if group.size > 1]
    if not used:
        return
    found = _fitting(mesh, [group for group in used if group.size < mesh.world])
    hint = (
        f"give --mesh {found}" if found is not None and str(found) != str(mesh) else "name the axes as the program does"
    )
    axes = Axes([(name, mesh.size(name)) for name in mesh.order])
    named = [(axis_of(group), group) for group in used if axis_of(group) in mesh.names]
    fits = {name for name, group in named if set(group.ranks) == set(axes.members(group.ranks[0], name))}
    for name, group in named:
        if name not in fits:  # a program may have several meshes that name an axis alike
            wanted = axes.members(group.ranks[0], name)
            raise UsageError(
                f"the program's group {name} is {_said(group.ranks)}, but along {name} of the mesh {mesh} it would be "
                f"{_said(wanted)}",
                hint=hint,
            )
    if found is None or sorted(found.sizes) != sorted(mesh.sizes):
        return
    for group in used:
        if not _is_whole(axes, group):
            where = _part_of(mesh, group)
            raise UsageError(
                f"a group of the program is {_said(group.ranks)}, which {where} of the mesh {mesh}", hint=hint
            )


def say_without_axis(mesh: Mesh, groups: Iterable[Group]) -> str:
    """The groups that are no axes of the mesh, and no parts of axes, so that they tell nothing of whether it is the
    program's; empty where there are none."""
    found = list(dict.fromkeys(tuple(sorted(g.ranks)) for g in groups if g.size > 1 and not _has_channel(mesh, g)))
    if not found:
        return ""
    shown = "; ".join(_said(ranks) for ranks in found[:_SHOWN_GROUPS])
    more = f"; and {counted(len(found) - _SHOWN_GROUPS, 'more group')}" if len(found) > _SHOWN_GROUPS else ""
    lie = "lies" if len(found) == 1 else "lie"
    return f"{counted(len(found), 'group')} of the program {lie} along no axis of the mesh {mesh}: {shown}{more}"


def _has_channel(mesh: Mesh, group: Group) -> bool:
    try:
        channel_of(group, mesh)
    except UsageError:
        return False
    return True


def axis_of(group: Group) -> str:
    """The axis that the program says the group is of; empty where it does not say."""
    if group.desc.startswith(_DEVICE_MESH):
        return group.desc.removeprefix(_DEVICE_MESH)
    word = group.desc.partition("_")[0]
    is_plain = group.desc in (f"{word}{_PARALLEL_GROUP}", f"{word}_MODEL{_PARALLEL_GROUP}")
    return _WORDS.get(word, "") if is_plain else ""


def _is_whole(axes: Axes, group: Group) -> bool:
    """Of one axis, or of several."""
    return axes.name_of(f"={group.ranks}", group.ranks) != f"={group.ranks}"


def _part_of(mesh: Mesh, group: Group) -> str:
    try:
        return f"is only a part of {channel_of(group, mesh).partition('[')[0]}"
    except UsageError:
        return "lies along no axis"


def _fitting(mesh: Mesh, groups: Collection[Group]) -> Mesh | None:
    """The mesh whose axes the groups are, as far as they tell; None where they are axes of no mesh."""
    named = {row: axis_of(group) for group in groups if (row := _row(group)) is not None}
    cuts = sorted({1, mesh.world, *(cut for row in named for cut in (row.stride, row.stride * row.size))})
    if any(larger % smaller for smaller, larger in pairwise(cuts)):
        return None
    rows = [_Row(smaller, larger // smaller) for smaller, larger in pairwise(cuts)]
    found = _named(mesh, list(reversed(rows)), named)
    axes = Axes([(name, found.size(name)) for name in found.order])
    return found if all(_is_whole(axes, group) for group in groups) else None


def _named(mesh: Mesh, rows: list[_Row], named: dict[_Row, str]) -> Mesh:
    """By the program's own names, else by an axis of the user's of that size, else by number."""
    taken = {named[row] for row in rows if named.get(row)}
    texts = []
    for number, row in enumerate(rows):
        name = named.get(row, "")
        if not name:
            free = [n for n, size in zip(mesh.names, mesh.sizes, strict=True) if size == row.size and n not in taken]
            name = free[0] if free else f"axis{number}"
            taken.add(name)
        texts.append(f"{name}={row.size}")
    return Mesh.parse(",".join(texts))


def _row(group: Group) -> _Row | None:
    ranks = sorted(group.ranks)
    steps = {after - before for before, after in pairwise(ranks)}
    return _Row(steps.pop(), len(ranks)) if len(steps) == 1 else None


def _said(ranks: Iterable[int]) -> str:
    chosen = list(ranks)
    return f"ranks {', '.join(map(str, chosen[:_SHOWN]))}{', ...' if len(chosen) > _SHOWN else ''}"
