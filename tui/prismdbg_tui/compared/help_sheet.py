"""The help of a sweep's screen."""

from __future__ import annotations

from collections.abc import Mapping

from rich.text import Text

from prismdbg_tui.compared.keys import SWEEP_ACTIONS, TABLE
from prismdbg_tui.drawing.colors import color
from prismdbg_tui.screens.help import Help

_COLUMNS = """\
  *           no other configuration is better both in time and in memory
  time        of an iteration, or why there is none
  interval    of several iterations: where two overlap, neither is faster
  memory      the peak of the rank that needs most; - where it was not traced
  fits        whether it is at most --memory-cap
  idle        the share of all ranks' time without computation and transfer
  exposed     the share of an iteration in which ranks wait for transfers, by axis
"""


class SweepHelp(Help):
    def __init__(self, keys: Mapping[str, str]) -> None:
        super().__init__(keys, live=True, actions=SWEEP_ACTIONS)

    def _beside(self) -> Text:
        text = Text()
        text.append("Columns\n", f"bold {color(self.app, 'accent')}")
        text.append(_COLUMNS)
        text.append(f"\nTo change keys: ~/.config/prismdbg/keys.toml, below a line [{TABLE}]\n", "dim")
        return text
