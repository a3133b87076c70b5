"""`prismdbg graph`: what the whole job would do, from its saved execution graph. Nothing runs."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from shlex import quote
from typing import Any

import click

from prismdbg.cli.commands import graph_build, graph_gpt
from prismdbg.cli.options import output_file, what_if_options
from prismdbg.cli.terminal import long_work
from prismdbg.errors import UsageError
from prismdbg.exporters.chakra_graph import write_graph
from prismdbg.job_graph.job_view import ASSUMED_CLUSTER
from prismdbg.jobs.storage.pass_errors import with_passes
from prismdbg.model.durations import four_digits
from prismdbg.model.plurals import counted
from prismdbg.render import console
from prismdbg.simulate.cluster import cluster_file
from prismdbg.simulate.cluster.cluster import ClusterModel, example
from prismdbg.simulate.engine.changes import Changes
from prismdbg.simulate.engine.critical_path import critical_path
from prismdbg.simulate.engine.engine import Keep
from prismdbg.simulate.engine.simulate import simulate
from prismdbg.simulate.engine.timeline import Timeline
from prismdbg.simulate.graph import graph_file
from prismdbg.simulate.graph.job_graph import JobGraph
from prismdbg.simulate.report import charts, perfetto, report
from prismdbg.simulate.report.page.page import page

_GRAPH = click.argument("graph", type=click.Path(path_type=Path, exists=True), metavar="GRAPH")
_CLUSTER = click.option(
    "--cluster",
    "cluster_path",
    type=click.Path(path_type=Path),
    metavar="YAML",
    help="Simulate this cluster.  [default: assumed figures]",
)
_JSON = click.option("--json", "as_json", is_flag=True, help="Print the values as JSON.")


@click.group()
def command() -> None:
    """Build and simulate one iteration of the whole job.

    Example: `prismdbg graph build RUN`, then `prismdbg graph simulate RUN`

    GRAPH is a graph file or the folder that contains it. --cluster takes the file that `prismdbg calibrate` writes;
    examples/emulation/cluster.yaml explains each line.
    """


command.add_command(graph_build.command)
command.add_command(graph_gpt.command)


@command.command("simulate")
@_GRAPH
@_CLUSTER
@_JSON
@click.option(
    "--html", "page_path", type=click.Path(path_type=Path), metavar="FILE", help="Also write an HTML page to FILE."
)
@long_work.shown()
def simulate_command(graph: Path, cluster_path: Path | None, as_json: bool, page_path: Path | None) -> None:
    """Show time, breakdown, waits and stragglers of an iteration.

    Example: `prismdbg graph simulate RUN --cluster cluster.yaml --html page.html`
    """
    timeline = _simulated(graph, cluster_path, trace=page_path is not None)
    if page_path is not None:
        text = page(timeline, critical_path(timeline))
        with output_file.whole(page_path) as path:
            path.write_text(text, encoding="utf-8")
        console.say(f"{page_path}: {console.size(page_path.stat().st_size)}, for any browser")
    _say_assumed(cluster_path)
    if as_json:
        console.emit_json(_values(timeline))
        return
    _emit(_heading(timeline))
    _emit(["", *charts.pipeline(report.stages(timeline), timeline.iteration_ns, _width())])
    _emit(["", *charts.waits(report.by_axis(timeline))])
    if late := report.stragglers(timeline):
        _emit(["", *charts.slowest(late)])
    _emit(["", *timeline.fidelity.lines()])


@command.command("critical-path")
@_GRAPH
@_CLUSTER
@_JSON
@click.option("--most", default=20, show_default=True, type=click.IntRange(1), metavar="N", help="Show at most N rows.")
@long_work.shown()
def critical_path_command(graph: Path, cluster_path: Path | None, as_json: bool, most: int) -> None:
    """Show the critical path by rank and operation.

    Example: `prismdbg graph critical-path RUN --most 50`
    """
    timeline = _simulated(graph, cluster_path, trace=True)
    rows = report.path_rows(critical_path(timeline))
    _say_assumed(cluster_path)
    if as_json:
        console.emit_json({**_values(timeline), "critical_path": [asdict(row) for row in rows]})
        return
    _emit(_heading(timeline))
    _emit(["", *charts.path(rows[:most], timeline.iteration_ns)])
    if len(rows) > most:
        rest_ns = sum(row.taken_ns for row in rows[most:])
        console.emit(f"{len(rows) - most} more, together {four_digits(rest_ns)}")
    _emit(["", *timeline.fidelity.lines()])


@command.command("what-if")
@_GRAPH
@_CLUSTER
@_JSON
@click.option(
    "--slow-rank", "slow_ranks", multiple=True, metavar="RANK=FACTOR", help="Slow this rank's compute by FACTOR."
)
@click.option(
    "--slow-link", "slow_links", multiple=True, metavar="RANK=FACTOR", help="Slow this rank's transfers by FACTOR."
)
@click.option("--tier", "tiers", multiple=True, metavar="NAME=FACTOR", help="Slow the links of this tier by FACTOR.")
@click.option(
    "--kernel",
    "kernels",
    multiple=True,
    metavar="PATTERN=FACTOR",
    help="Slow the computations that match PATTERN by FACTOR.",
)
@click.option(
    "--delay", "delays", multiple=True, metavar="RANK=TIME", help="Start this rank TIME later, as in 617=5ms."
)
@click.option(
    "--order", metavar="AXES", help="Lay out the ranks in this order of axes. Ranks along the last axis are adjacent."
)
@long_work.shown()
def what_if_command(
    graph: Path,
    cluster_path: Path | None,
    as_json: bool,
    order: str | None,
    **changed: Sequence[str],
) -> None:
    """Change the job and compare it with the original.

    Example: `prismdbg graph what-if RUN --slow-rank 617=1.3`

    Nothing runs: both jobs are simulated. A factor below 1 makes it faster.
    """
    changes = what_if_options.changes(**changed)
    if changes == Changes() and not order:
        raise UsageError("no change given", hint="use --slow-rank, --slow-link, --tier, --kernel, --delay or --order")
    job, cluster = _read(graph), _cluster(cluster_path)
    before = with_passes(simulate(job, cluster), graph)
    after = simulate(job.reordered(order.split(",")) if order else job, cluster, changes)
    after = with_passes(after, graph, is_as_it_ran=False)
    _say_assumed(cluster_path)
    if as_json:
        console.emit_json({"before": _values(before), "after": _values(after)})
        return
    difference_ns = after.iteration_ns - before.iteration_ns
    sign = "-" if difference_ns < 0 else "+"
    _emit(
        [
            f"{four_digits(before.iteration_ns)} becomes {four_digits(after.iteration_ns)}: "
            f"{sign}{four_digits(abs(difference_ns))} ({difference_ns / max(before.iteration_ns, 1):+.2%})",
            f"fidelity: before, {before.fidelity.summary()}; after, {after.fidelity.summary()}; details at the end",
        ]
    )
    _emit(["", *charts.compared_waits(report.by_axis(before), report.by_axis(after))])
    if late := report.stragglers(after):
        _emit(["", *charts.slowest(late)])
    _emit(["", *(f"before, {line}" for line in before.fidelity.error_lines()), *after.fidelity.lines()])


@command.command("export")
@_GRAPH
@_CLUSTER
@click.option("-o", "--output", required=True, type=click.Path(path_type=Path), metavar="FILE", help="Write to FILE.")
@click.option(
    "--format",
    "kind",
    type=click.Choice(["perfetto", "chakra"]),
    default="perfetto",
    show_default=True,
    help="Use this format.",
)
@click.option(
    "--rank",
    "ranks",
    multiple=True,
    type=int,
    metavar="N",
    help="Add this rank to the ranks that represent the classes; for chakra, write only the given ranks.",
)
@long_work.shown()
def export_command(graph: Path, cluster_path: Path | None, output: Path, kind: str, ranks: tuple[int, ...]) -> None:
    """Write the timeline for Perfetto, or traces for ASTRA-sim.

    Example: `prismdbg graph export RUN -o timeline.json`, or `prismdbg graph export RUN --format chakra -o DIR`

    perfetto: a file for ui.perfetto.dev, with one process for each group of ranks that advance together, and one for
    the critical path.

    chakra: a new folder FILE with a Chakra execution trace of each rank. Nothing is simulated.
    """
    if kind == "chakra":
        _export_chakra(_read(graph), output, ranks)
        return
    timeline = _simulated(graph, cluster_path, keep=Keep.ALL if ranks else Keep.FIRST, trace=True)
    with output_file.whole(output) as path:
        perfetto.write(timeline, path, ranks, critical_path(timeline))
    _say_assumed(cluster_path)
    classes = counted(len(timeline.teams), "class", "classes")
    of = counted(timeline.graph.mesh.world, "rank")
    console.say(f"{output}: {kind}, {classes} of {of}, {console.size(output.stat().st_size)}")
    console.say(*timeline.fidelity.lines())


def _export_chakra(graph: JobGraph, output: Path, ranks: tuple[int, ...]) -> None:
    with output_file.whole_folder(output) as folder:
        nodes = write_graph(graph, folder, ranks)
    console.say(f"{output}: chakra, {counted(len(ranks) or graph.mesh.world, 'rank')}, {counted(nodes, 'node')}")


def _read(path: Path) -> JobGraph:
    if not path.is_dir():
        return graph_file.load(path)
    if not (path / graph_file.FILE_NAME).is_file():
        whole = path.resolve()
        if (beside := whole.parent / f"{whole.name}.{graph_file.FILE_NAME}").is_file():  # of a capsule, or of traces
            return graph_file.load(beside)
        raise UsageError(
            f"{path} contains no {graph_file.FILE_NAME}", hint=f"run prismdbg graph build {quote(str(path))}"
        )
    return graph_file.load(path / graph_file.FILE_NAME)


def _cluster(path: Path | None) -> ClusterModel:
    return cluster_file.read(path) if path is not None else example()


def _say_assumed(path: Path | None) -> None:
    """Once there is a result that rests on it."""
    if path is None:
        console.say(ASSUMED_CLUSTER)


def _simulated(graph: Path, cluster_path: Path | None, *, keep: Keep = Keep.FIRST, trace: bool = False) -> Timeline:
    return with_passes(simulate(_read(graph), _cluster(cluster_path), keep=keep, trace=trace), graph)


def _heading(timeline: Timeline) -> list[str]:
    mesh = timeline.graph.mesh
    return [
        f"{counted(mesh.world, 'rank')}, {mesh}: {four_digits(timeline.iteration_ns)} per iteration, "
        f"{timeline.bubble_share:.1%} of the ranks' time idle",
        f"fidelity: {timeline.fidelity.summary()}; details at the end",
    ]


def _values(timeline: Timeline) -> dict[str, Any]:
    return {
        "mesh": str(timeline.graph.mesh),
        "world": timeline.graph.mesh.world,
        "iteration_ns": timeline.iteration_ns,
        "idle_share": timeline.bubble_share,
        "classes": [
            {"name": c.name, "ranks": ranks, "peak_bytes": c.entries.peak_bytes()}
            for c, ranks in zip(timeline.graph.classes, timeline.graph.class_sizes, strict=True)
        ],
        "channels": [asdict(row) for row in report.by_axis(timeline)],
        "stragglers": [asdict(row) for row in report.stragglers(timeline)],
        "fidelity": {"summary": timeline.fidelity.summary(), **asdict(timeline.fidelity)},
    }


def _width() -> int:
    return shutil.get_terminal_size((100, 24)).columns


def _emit(lines: Sequence[str]) -> None:
    console.emit_lines(lines)
