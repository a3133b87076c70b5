"""The help of a recorded job's screen."""

from __future__ import annotations

from collections.abc import Mapping

from rich.text import Text

from prismdbg_tui.drawing.colors import color
from prismdbg_tui.recorded_job.keys import JOB_ACTIONS, TABLE
from prismdbg_tui.screens.help import Help

_COLUMNS = """\
  last        the last collective that the rank issued, and the program's line
  waited      how long it waited in collectives for the rank that came last
  awaited     how long the others waited for it, the median of them
  memory      the peak of its process
  CPU, queue, GPU   with record --telemetry: how much of the time its main thread ran, waited for a CPU, and its GPUs
              were busy
  inside a collective   its share of the time, from the begin of the job to its end: where one rank's strip is low and
              the others' are high, they wait for it
"""


class JobHelp(Help):
    def __init__(self, keys: Mapping[str, str]) -> None:
        super().__init__(keys, live=True, actions=JOB_ACTIONS)

    def _beside(self) -> Text:
        text = Text()
        text.append("Columns\n", f"bold {color(self.app, 'accent')}")
        text.append(_COLUMNS)
        text.append(f"\nTo change keys: ~/.config/prismdbg/keys.toml, below a line [{TABLE}]\n", "dim")
        return text
