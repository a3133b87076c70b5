"""From a number to a colour, or to a shade where there are no colours; and numbers with their unit."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from textual.color import Color

from prismdbg.simulate.graph.mesh import Ints
from prismdbg_tui.drawing import figures
from prismdbg_tui.overview.job import Unit

LEVELS = 24
SHADES = "·░▒▓█"
_ON_DARK = ("#16233f", "#24508a", "#2b93a5", "#e8c25a", "#ff7a3d", "#ff3d55")
_ON_LIGHT = ("#e4ecf7", "#a9cbe6", "#5fa8b0", "#d9a62e", "#d9641e", "#b3001b")


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """`borders`: of `LEVELS` levels, ascending, from the least of all ranks to the most. even: each level has as many
    ranks as the next, so that small differences among many are seen; else each is as wide."""

    borders: tuple[float, ...]
    even: bool

    @classmethod
    def of(cls, values: Ints, *, even: bool) -> Scale:
        if not len(values):
            return cls(borders=(0.0,) * (LEVELS + 1), even=even)
        if even:
            found = np.quantile(values, np.linspace(0, 1, LEVELS + 1))
        else:
            found = np.linspace(float(values.min()), float(values.max()), LEVELS + 1)
        return cls(borders=tuple(found.tolist()), even=even)

    @property
    def low(self) -> float:
        return self.borders[0]

    @property
    def middle(self) -> float:
        """Where half of the levels end."""
        return self.borders[LEVELS // 2]

    @property
    def high(self) -> float:
        return self.borders[-1]

    def level(self, value: float) -> int:
        """0 for the least, `LEVELS - 1` for the most; 0 where there is no difference."""
        if self.high <= self.low:
            return 0
        return min(max(bisect_right(self.borders, value) - 1, 0), LEVELS - 1)


def shade(number: int) -> str:
    return SHADES[min(number * len(SHADES) // LEVELS, len(SHADES) - 1)]


@lru_cache(maxsize=2 * LEVELS)
def tint(number: int, dark: bool) -> str:
    """`#rrggbb`."""
    stops = _ON_DARK if dark else _ON_LIGHT
    place = number / (LEVELS - 1) * (len(stops) - 1)
    before = min(int(place), len(stops) - 2)
    return Color.parse(stops[before]).blend(Color.parse(stops[before + 1]), place - before).hex6


def amount(value: float, unit: Unit) -> str:
    if unit is Unit.MEMORY:
        return figures.size(int(value))
    return figures.duration(value)
