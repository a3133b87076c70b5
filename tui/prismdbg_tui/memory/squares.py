"""Shares of a whole as rectangles of character cells, each as near to a square as can be: a squarified treemap.

Bruls, Huizing and van Wijk, "Squarified Treemaps" (2000). A cell is twice as high as it is wide.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

_CELL = 2.0  # height of a cell in widths


@dataclass(frozen=True, slots=True)
class Box:
    """In cells; empty where a share is too small to be seen."""

    x: int
    y: int
    width: int
    height: int

    @property
    def is_empty(self) -> bool:
        return self.width < 1 or self.height < 1

    def covers(self, x: int, y: int) -> bool:
        return self.x <= x < self.x + self.width and self.y <= y < self.y + self.height


def squares(shares: Sequence[int], width: int, height: int) -> list[Box]:
    """One box a share, in the same order, which must be descending. Boxes touch and do not overlap."""
    total = sum(shares)
    if total <= 0 or width < 1 or height < 1:
        return [Box(0, 0, 0, 0) for _ in shares]
    scale = width * height * _CELL / total
    area = [share * scale for share in shares]
    boxes: list[Box] = []
    x, y, free_x, free_y = 0.0, 0.0, float(width), height * _CELL
    while len(boxes) < len(area):
        row = _row(area[len(boxes) :], min(free_x, free_y))
        thick = sum(row) / min(free_x, free_y) if min(free_x, free_y) > 0 else 0.0
        along = 0.0
        for share in row:
            length = share / thick if thick > 0 else 0.0
            if free_x >= free_y:  # the row is a column on the left
                boxes.append(_cells(x, y + along, thick, length))
            else:
                boxes.append(_cells(x + along, y, length, thick))
            along += length
        if free_x >= free_y:
            x, free_x = x + thick, max(free_x - thick, 0.0)
        else:
            y, free_y = y + thick, max(free_y - thick, 0.0)
    return boxes


def _row(area: Sequence[float], side: float) -> Sequence[float]:
    """As many of the first as make the row's worst box squarest."""
    count = 1
    while count < len(area) and _worst(area[: count + 1], side) <= _worst(area[:count], side):
        count += 1
    return area[:count]


def _worst(row: Sequence[float], side: float) -> float:
    """The longest side by the shortest, of the row's worst box."""
    total = sum(row)
    if total <= 0 or side <= 0 or min(row) <= 0:
        return float("inf")
    return max(side * side * max(row) / total**2, total**2 / (side * side * min(row)))


def _cells(x: float, y: float, width: float, height: float) -> Box:
    """Edges are rounded, not sizes: then neighbours share theirs."""
    left, right = round(round(x, 6)), round(round(x + width, 6))
    top, bottom = round(round(y / _CELL, 6)), round(round((y + height) / _CELL, 6))
    return Box(left, top, right - left, bottom - top)
