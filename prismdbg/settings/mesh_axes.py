"""Which mesh axes a process group spans, found from its members' coordinates. No torch."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from math import prod

from prismdbg.settings.emulation import WORLD


class Axes:
    """Row-major: the last axis has adjacent ranks."""

    def __init__(self, axes: Sequence[tuple[str, int]]) -> None:
        self.names = tuple(name for name, _ in axes)
        self.sizes = tuple(size for _, size in axes)
        self._known: dict[str, str] = {}

    def coordinates(self, rank: int) -> tuple[int, ...]:
        found = []
        for size in reversed(self.sizes):
            rank, at = divmod(rank, size)
            found.append(at)
        return tuple(reversed(found))

    def name_of(self, group: str, ranks: Sequence[int]) -> str:
        """`tp`, `dp+tp`, `world`; the group's own name where its members are no such block of the mesh."""
        known = self._known.get(group)
        if known is None:
            known = self._known[group] = self._find(ranks) or group
        return known

    def _find(self, ranks: Sequence[int]) -> str:
        if len(ranks) == prod(self.sizes):
            return WORLD
        if not ranks:
            return ""
        first = self.coordinates(ranks[0])
        seen = [{at} for at in first]
        for rank in ranks:
            for values, at in zip(seen, self.coordinates(rank), strict=True):
                values.add(at)
        spans = [len(values) for values in seen]
        whole = all(span in (1, size) for span, size in zip(spans, self.sizes, strict=True))
        if not whole or prod(spans) != len(ranks):
            return ""
        return "+".join(name for name, span in zip(self.names, spans, strict=True) if span > 1) or self.names[-1]

    def members(self, rank: int, axis: str) -> list[int]:
        """All ranks of the group over `axis` that holds `rank`."""
        spanned = self.names if axis == WORLD else axis.split("+")
        at = self.coordinates(rank)
        ranges = [
            range(size) if name in spanned else (place,)
            for name, size, place in zip(self.names, self.sizes, at, strict=True)
        ]
        found = []
        for place in product(*ranges):
            number = 0
            for size, one in zip(self.sizes, place, strict=True):
                number = number * size + one
            found.append(number)
        return found
