"""The help of a sweep's screen."""

from __future__ import annotations

from collections.abc import Mapping

from prismdbg_tui.compared.keys import SWEEP_ACTIONS, TABLE
from prismdbg_tui.screens.help import HelpOfTable

_COLUMNS = {
    "*": "no other configuration is better both in time and in memory",
    "time": "of an iteration, or why there is none",
    "interval": "of several iterations: where two overlap, neither is faster",
    "memory": "the peak of the rank that needs most; - where it was not traced",
    "fits": "whether it is at most --memory-cap",
    "idle": "the share of all ranks' time without computation and transfer",
    "tokens/s": "of an iteration, divided by its time; needs --tokens",
    "exposed": "the share of an iteration in which ranks wait for transfers, by axis",
}


class SweepHelp(HelpOfTable):
    def __init__(self, keys: Mapping[str, str]) -> None:
        super().__init__(keys, SWEEP_ACTIONS, live=True, title="Columns", meanings=_COLUMNS, table=TABLE)
