"""The help of a recorded job's screen."""

from __future__ import annotations

from collections.abc import Mapping

from prismdbg_tui.recorded_job.keys import JOB_ACTIONS, TABLE
from prismdbg_tui.screens.help import HelpOfTable

_COLUMNS = {
    "last": "the last collective that the rank issued, and the program's line",
    "waited": "how long it waited for the rank that came last, in collectives that all of the group completed: "
    "for whom a hang waits is said above the table and on the map",
    "awaited": "how long the others waited for it in such collectives, the median of them",
    "memory": "the peak of its process",
    "CPU, queue, GPU": "with record --telemetry: how much of the time its main thread ran, waited for a CPU, and its "
    "GPUs were busy",
    "inside a collective": "its share of the time, from the start of the job to its end: where one rank's strip is low "
    "and the others' are high, they wait for it",
}
_BELOW = (
    "The line below the table: the ranks that the rank under the cursor waited for, in collectives that completed, the "
    "longest first: how long, when (the strip is the time of the job, too), and at which moment longest.",
    "Columns for which the terminal is too narrow are left out.",
    "The map of the time: a row for each rank, or for several where there are more ranks than lines; a row of several "
    "ranks shows the largest shares. The height of a bar is the share of the cell in which the rank waits for a rank "
    "that comes later, or in which others wait for it. Below the map: who was waited for longest in the cell under the "
    "cursor, how long, in which collective, and its line. The shares of the cell in which the rank waits, is otherwise "
    "in collectives, and is between them add up to all of it; `awaited` is the share in which others wait for it "
    "meanwhile. `enter` opens the rank at that collective. The map shows the whole time: the timeline of a rank, which "
    "`enter` opens, shows more detail (`+` and `-`, or the wheel).",
)


class JobHelp(HelpOfTable):
    def __init__(self, keys: Mapping[str, str]) -> None:
        super().__init__(keys, JOB_ACTIONS, live=True, title="Columns", meanings=_COLUMNS, remarks=_BELOW, table=TABLE)
