"""One recorded rank in place of all that did the same. The user says which those are; what cannot be is refused."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from prismdbg.errors import UsageError
from prismdbg.simulate.graph.entries import Entries
from prismdbg.simulate.graph.folding import first_difference, shape_of
from prismdbg.simulate.graph.mesh import Mesh

_NEIGHBOUR = re.compile(r"([A-Za-z_]\w*)([+-]\d+)(?:#.*)?")


def replicate(mesh: Mesh, recorded: Mapping[int, Entries], alike: Sequence[str]) -> dict[int, Entries]:
    """What was recorded, and for every other rank what one did that differs from it along these axes only."""
    others = [name for name in mesh.names if name not in [mesh.names[mesh.axis(axis)] for axis in alike]]
    by_role: dict[tuple[int, ...], int] = {}
    for rank in sorted(recorded):
        place = mesh.coordinates(rank)
        first = by_role.setdefault(tuple(place[name] for name in others), rank)
        if alike and shape_of(recorded[rank]) != shape_of(recorded[first]):
            found = first_difference(recorded[first], recorded[rank])
            raise UsageError(
                f"{mesh.say(first)} and {mesh.say(rank)} issued different collectives, so ranks differ along "
                f"{', '.join(alike)}: call #{found.number} is {found.one}, and {found.other}",
                hint="name fewer axes",
            )
    found_for = dict(recorded)
    for rank in range(mesh.world):
        place = mesh.coordinates(rank)
        stands_in = by_role.get(tuple(place[name] for name in others))
        if rank not in found_for and stands_in is not None:
            _check_neighbours(mesh, recorded[stands_in], stands_in, place)
            found_for[rank] = recorded[stands_in]
    return found_for


def _check_neighbours(mesh: Mesh, entries: Entries, done_by: int, place: Mapping[str, int]) -> None:
    """The first stage receives from nobody: it did not do what a stage in the middle did."""
    for channel in entries.channels:
        match = _NEIGHBOUR.fullmatch(channel)
        if match is not None and not 0 <= place[match[1]] + int(match[2]) < mesh.size(match[1]):
            raise UsageError(
                f"{mesh.say(mesh.rank(**place))} has no neighbour at {channel}, so it cannot do the same "
                f"work as {mesh.say(done_by)}",
                hint=f"leave {match[1]} out of --alike, and add a rank of each role along it",
            )
