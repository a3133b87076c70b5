"""The help of the overview and of a simulated timeline."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.text import Text

from prismdbg_tui.overview.keys import TABLE
from prismdbg_tui.screens.help import Help
from prismdbg_tui.session.actions import Action

_NUMBERS = """\
  waiting     the time a rank stands and waits for others
  late        how much later than the first of its groups it comes, summed: whom the others wait for
  done        when the last of its work ends
  computed    how long it computes; exposed: transfer that nothing hides
  memory      the peak of what it holds itself, where the graph knows of memory
A cell of many ranks shows the most of them unless `fold` says otherwise. A dot marks ranks that really ran.
"""


class OverviewHelp(Help):
    def __init__(self, keys: Mapping[str, str], actions: Sequence[Action]) -> None:
        super().__init__(keys, live=False, actions=actions)

    def _end(self, text: Text, accent: str) -> None:
        text.append("Numbers\n", f"bold {accent}")
        text.append(_NUMBERS)
        text.append(f"\nKeys of your own: ~/.config/prismdbg/keys.toml, below a line [{TABLE}]\n", "dim")
