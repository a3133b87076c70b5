"""All ranks of a simulated job as lines of text, for pipes and files."""

from __future__ import annotations

from typing import TextIO

from prismdbg_tui.drawing import figures
from prismdbg_tui.overview.job import OverviewJob


def write_ranks(job: OverviewJob, output: TextIO) -> None:
    """Tab-separated, numbers as they are: nanoseconds and bytes."""
    mesh, metrics = job.mesh, job.metrics
    output.write("\t".join(["rank", *mesh.names, "class", "ran", *(f"{m.name} {m.unit}" for m in metrics)]) + "\n")
    names = [figures.clean(name).replace("\n", " ") for name in job.class_names]
    columns = [metric.values.tolist() for metric in metrics]
    for rank, number in enumerate(job.class_of.tolist()):
        cells = [rank, *mesh.coordinates(rank).values(), names[number], job.who_ran(rank)]
        output.write("\t".join(map(str, [*cells, *(column[rank] for column in columns)])) + "\n")
