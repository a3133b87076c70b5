"""The help of the overview and of a simulated timeline."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from prismdbg_tui.overview.keys import TABLE
from prismdbg_tui.screens.help import HelpOfTable
from prismdbg_tui.session.actions import Action

_NUMBERS = {
    "waiting": "the time that a rank waits for others",
    "late": "the sum of its delays behind the first of those ranks of its groups that make the same calls; others "
    "wait for late ranks",
    "done": "the time when its last work ends",
    "computed": "the time that it computes",
    "exposed": "the time of communication that no computation hides",
    "memory": "the peak of its own memory, if the graph has memory",
}
_REMARKS = (
    "A cell of several ranks shows their maximum, or their mean or minimum (`fold`). A dot marks ranks that really "
    "ran.",
    "`tp` and `dp,cp` are groups of ranks that differ only in these axes; `pp+1` and `pp-1` are the next and the "
    "previous rank along an axis. What follows `#` tells channels of the same ranks apart: of predicted pipelines "
    "`f` carries the forward pass, `b` the backward pass.",
)


class OverviewHelp(HelpOfTable):
    def __init__(self, keys: Mapping[str, str], actions: Sequence[Action], table: str = TABLE) -> None:
        super().__init__(keys, actions, live=False, title="Numbers", meanings=_NUMBERS, remarks=_REMARKS, table=table)
