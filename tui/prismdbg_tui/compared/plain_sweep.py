"""A sweep as lines of text, for pipes and files."""

from __future__ import annotations

from typing import TextIO

from prismdbg.sweep.result import Result
from prismdbg.sweep.stored import StoredSweep
from prismdbg_tui.drawing import figures

_HEADER = ("configuration", "state", "mesh", "time_ns", "low_ns", "high_ns", "peak_bytes", "fits", "why")


def write_sweep(sweep: StoredSweep, output: TextIO) -> None:
    """Tab-separated, numbers as they are: nanoseconds and bytes; what is not known is empty."""
    output.write("\t".join(_HEADER) + "\n")
    for each in sweep.results:
        output.write("\t".join(_cells(each, sweep.cap_bytes)) + "\n")


def _cells(each: Result, cap_bytes: int) -> list[str]:
    time, fits = each.time, each.fits(cap_bytes)
    ends = (time.low, time.high) if time.is_known else ("", "")
    times = (time.middle, *ends) if each.middle_ns else ("", "", "")
    peak = "" if each.peak_bytes is None else each.peak_bytes
    cells = (each.name, each.state, each.mesh, *times, peak, "" if fits is None else fits, each.why)
    return [figures.clean(str(cell)).replace("\n", " ") for cell in cells]
