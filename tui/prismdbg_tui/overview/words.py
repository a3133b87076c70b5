"""What the overview says in words: of the rank under the cursor, of its cell, and of the whole iteration."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from prismdbg.job_graph.job_view import ASSUMED_CLUSTER
from prismdbg.render.console import in_rows
from prismdbg.simulate.report import charts, report
from prismdbg.simulate.report.report import PathRow
from prismdbg_tui.drawing import figures
from prismdbg_tui.overview.job import OverviewJob
from prismdbg_tui.overview.scale import amount
from prismdbg_tui.overview.view import MapView

_MOST_CHANNELS = 6
_MOST_PATH = 12
_SIDE_BY_SIDE = 130  # characters


DROPPED_FIRST = (1,)  # of `heading`, where there is little room: "Fidelity" says it, too


def heading(job: OverviewJob) -> tuple[str, ...]:
    """Of the whole job, in one line: what it takes, and what that is worth."""
    timeline = job.timeline
    return (
        f"{figures.duration(timeline.iteration_ns)} per iteration",
        timeline.fidelity.summary(),
        *(["cluster assumed"] if job.cluster == ASSUMED_CLUSTER else []),
        f"{timeline.bubble_share:.1%} idle",
        f"{figures.plural(job.mesh.world, 'rank')}, {job.mesh}",
    )


def of_rank(look: MapView, accent: str) -> Text:
    """Two lines: who it is and how far it is to be believed, then its numbers."""
    job, rank = look.job, look.rank
    at = " ".join(f"{name}={number}" for name, number in job.mesh.coordinates(rank).items())
    text = Text()
    text.append(f"◆ rank {figures.count(rank)}", f"bold {accent}")
    text.append(f"  {at}", "bold")
    text.append(f"  {figures.clean(job.class_names[int(job.class_of[rank])])}, {job.who_ran(rank)}\n", "")
    chosen = look.metric
    others = [metric for metric in job.metrics if metric is not chosen and not metric.name.startswith("on ")]
    for metric in (chosen, *others):
        text.append(f"{metric.name} ", "dim")
        text.append(amount(int(metric.values[rank]), metric.unit), f"bold {accent}" if metric is chosen else "bold")
        text.append("  ")
    return text


def of_cell(look: MapView, width: int) -> Text:
    """What lies under the cursor besides its rank; where there is little room, without its last parts."""
    ranks, metric = look.ranks_here, look.metric
    place = f"place {figures.count(look.place_by_value())} of {figures.count(look.job.mesh.world)} by {metric.name}"
    if len(ranks) == 1:
        return Text(place, "dim")
    values = metric.values[ranks]
    least, most, mean = (amount(float(value), metric.unit) for value in (values.min(), values.max(), values.mean()))
    ran = int(np.isin(ranks, list(look.job.ran)).sum()) if look.job.ran else 0
    really = f", {ran} of them ran" if ran else ""
    said = f"{place} · its cell: {figures.count(len(ranks))} ranks{really}, {least} to {most}, mean {mean}"
    return Text(figures.first_fitting(figures.parts(said), width), "dim")


def of_iteration(job: OverviewJob, path: Sequence[PathRow] | None, width: int, accent: str) -> RenderableType:
    """`path`: None while it is looked for. Side by side where there is room."""
    timeline = job.timeline
    waits = _section("Waits by channel, mean per rank", charts.waits(report.by_axis(timeline)[:_MOST_CHANNELS]), accent)
    found = ["searching ..."] if path is None else charts.path(path[:_MOST_PATH], timeline.iteration_ns)
    critical = _section("Critical path", found, accent)
    cluster = job.cluster if job.cluster in ("", ASSUMED_CLUSTER) else f"cluster: {job.cluster}"
    believed = [*timeline.fidelity.lines(), *filter(None, [cluster])]
    honest = _section("Fidelity", list(in_rows(map(figures.clean, believed), width)), accent)
    if width < _SIDE_BY_SIDE:
        return Text("\n\n").join([critical, waits, honest])
    table = Table.grid(padding=(0, 3))
    table.add_row(critical, waits)
    return Group(table, Text(), honest)


def _section(title: str, lines: Sequence[str], accent: str) -> Text:
    text = Text(no_wrap=True)
    text.append(title, f"bold {accent}")
    for line in lines:
        text.append(f"\n{figures.clean(line)}")
    return text
