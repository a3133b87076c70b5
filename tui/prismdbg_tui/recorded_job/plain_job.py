"""The ranks of a recorded job as lines of text, for pipes and files."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TextIO

from prismdbg.jobs.run_overview import SENSORS, RankRow
from prismdbg_tui.drawing import figures

_HEADER = (
    "rank",
    "state",
    "moment",
    "collectives",
    "last",
    "source",
    "waited_ns",
    "awaited_ns",
    "unknown_waits",
    "peak_bytes",
    *SENSORS,
)


def write_job(ranks: Iterable[RankRow], output: TextIO) -> None:
    """Tab-separated, numbers as they are: nanoseconds and bytes. A peak that is not known is empty, as are waits where
    no wait is known, and shares of the time of sensors that were not read. unknown_waits: of how many collectives it is
    not known how long they held the rank; the other two columns are without them."""
    output.write("\t".join(_HEADER) + "\n")
    for row in ranks:
        output.write("\t".join(_cells(row)) + "\n")


def _cells(row: RankRow) -> list[str]:
    waits = (row.waited_ns, row.awaited_ns) if row.known_waits else ("", "")
    numbers = (*waits, row.unknown_waits, row.peak_bytes or "")
    sensors = (f"{row.sensors[name]:.3f}" if name in row.sensors else "" for name in SENSORS)
    cells = (row.rank, row.state, row.moment, row.collectives, row.last, row.at, *numbers, *sensors)
    return [figures.clean(str(cell)).replace("\n", " ") for cell in cells]
