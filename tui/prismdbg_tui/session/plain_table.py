"""A capsule's collectives as lines of text, for pipes and files."""

from __future__ import annotations

from typing import TextIO

from prismdbg.capsule.capsule_dir import Capsule
from prismdbg_tui.drawing import figures
from prismdbg_tui.session.verdicts import Verdicts
from prismdbg_tui.timeline.recording import Recording, read_recording

_HEADER = ("moment", "op", "group", "seq", "bytes", "took_ns", "verdict", "source")


def write_table(capsule: Capsule, output: TextIO) -> None:
    """Tab-separated, numbers as they are: for the next program as well."""
    recording = read_recording(capsule)
    output.write("\t".join(_HEADER) + "\n")
    for row in range(len(recording)):
        output.write("\t".join(_cells(recording, row)) + "\n")


def _cells(recording: Recording, row: int) -> list[str]:
    columns, took = recording.columns, recording.took_ns(row)
    cells = [
        columns.moment(row),
        recording.label(row),
        recording.group(row).title,
        columns.seq[row],
        columns.size_bytes[row],
        "" if took is None else took,
        Verdicts().of(recording, row).text,
        recording.source(row),
    ]
    return [figures.clean(str(cell)).replace("\n", " ") for cell in cells]
