"""Where one is among the areas of a treemap: on one of them, of the whole or inside of an area. Knows no widget."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum

from prismdbg.errors import UsageError
from prismdbg_tui.memory.squares import Box
from prismdbg_tui.memory.treemap_drawing import placed_groups
from prismdbg_tui.memory.view import MemoryNode, largest_first


class Side(Enum):
    """As columns and rows, of the area that one goes to from another."""

    LEFT = (-1, 0)
    RIGHT = (1, 0)
    ABOVE = (0, -1)
    BELOW = (0, 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Areas:
    """`inside`: the area whose parts fill the pane. `at`: the one that was chosen; None: the largest."""

    groups: tuple[MemoryNode, ...] = ()
    inside: MemoryNode | None = None
    at: MemoryNode | None = None

    @property
    def shown(self) -> tuple[MemoryNode, ...]:
        return self.groups if self.inside is None else self.inside.children

    @property
    def chosen(self) -> MemoryNode | None:
        """None where there is no area at all."""
        return self.at or max(self.shown, key=lambda node: abs(node.size_bytes), default=None)

    def of(self, groups: tuple[MemoryNode, ...]) -> Areas:
        """The same place by its names, at another moment or grouped otherwise; what is not there is left."""
        inside = _named(groups, self.inside)
        if inside is None or not inside.children:
            return Areas(groups=groups, at=_named(groups, self.inside or self.at))
        return Areas(groups=groups, inside=inside, at=_named(inside.children, self.at))

    def towards(self, side: Side, width: int, height: int) -> Areas:
        """On the neighbour that touches the middle of this side, where there is one, in a pane of that size."""
        placed = placed_groups(self.shown, width, height)
        here = next((one.box for one in placed if one.node is self.chosen), None)
        if here is None:  # too small to be seen
            return replace(self, at=placed[0].node if placed else None)
        return self.pointed(width, height, *_beyond(here, side))

    def next_by_size(self, by: int) -> Areas:
        """On a larger or a smaller one, as they stand below each other in a list; at its ends on the same one."""
        order = largest_first(self.shown)
        at = next((at for at, node in enumerate(order) if node is self.chosen), 0) + by
        return replace(self, at=order[at]) if 0 <= at < len(order) else self

    def pointed(self, width: int, height: int, x: int, y: int) -> Areas:
        """On the area that is drawn in that cell, if one is."""
        placed = placed_groups(self.shown, width, height)
        at = next((one.node for one in placed if one.box.covers(x, y)), None)
        return self if at is None else replace(self, at=at)

    def opened(self) -> Areas:
        """`UsageError` where the chosen area has no parts."""
        if self.chosen is None or not self.chosen.children:
            raise UsageError("this area contains no smaller ones")
        return replace(self, inside=self.chosen, at=None)

    def closed(self) -> Areas:
        """On the area that one was in. `UsageError` where it was none."""
        if self.inside is None:
            raise UsageError("already at the outermost area")
        return replace(self, inside=None, at=self.inside)


def _beyond(box: Box, side: Side) -> tuple[int, int]:
    """The cell next to the middle of that side."""
    across, down = side.value
    x = box.x + box.width // 2 if not across else box.x + (box.width if across > 0 else -1)
    y = box.y + box.height // 2 if not down else box.y + (box.height if down > 0 else -1)
    return x, y


def _named(nodes: Sequence[MemoryNode], like: MemoryNode | None) -> MemoryNode | None:
    return next((node for node in nodes if like is not None and node.label == like.label), None)
