"""A warning that one rank needs values of many others, and how long these run: while there is time to stop. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from prismdbg.settings.emulation import WORLD
from prismdbg.settings.missing_value import MissingValue
from prismdbg.simulate.graph.mesh import Mesh

FEW = 3  # senders at one line of the program are no pattern yet
_HOUR_S = 3600.0


class SenderWarning:
    """`started` is told of every rank that is started for its values, and why."""

    def __init__(self, mesh: Mesh) -> None:
        self._mesh = mesh
        self._by_place: dict[tuple[int, str, str], set[int]] = {}

    def started(self, since: MissingValue, wall_s: Mapping[int, float]) -> str:
        """What to say of it; nothing but once for each line. wall_s: of every rank so far, in seconds."""
        sources = self._by_place.setdefault((since.rank, since.axis, since.where), set())
        sources.add(since.source)
        axes = self._mesh.names if since.axis == WORLD else tuple(since.axis.split("+"))
        if len(sources) != FEW + 1 or not set(axes) <= set(self._mesh.names):
            return ""
        most = prod(self._mesh.size(name) for name in axes) - 1
        known = [wall_s[source] for source in sources if wall_s.get(source)]
        each_s = sum(known) / len(known) if known else 0.0
        if most <= len(sources):
            return ""
        at = f" at {since.where}" if since.where else ""
        time = f", about {each_s:.0f} s each and {_span(most * each_s)} together" if each_s else ""
        return (
            f"rank {since.rank} needs data that other ranks compute{at}: up to {most:,} of them run, one after "
            f"another{time}. If these are too many, press Ctrl-C and leave this call out of the emulated run"
        )


def _span(seconds: float) -> str:
    return f"{seconds / _HOUR_S:.0f} h" if seconds >= 2 * _HOUR_S else f"{seconds / 60:.0f} min"
