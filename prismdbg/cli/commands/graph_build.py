"""`prismdbg graph build`: the execution graph of one iteration, from a run's logs, a capsule, or both."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import click

from prismdbg.capsule import layout
from prismdbg.cli.options import output_file, what_if_options
from prismdbg.cli.options.addresses import Fetched
from prismdbg.cli.options.archive_keys import archive_keys
from prismdbg.cli.options.param_types import seconds
from prismdbg.cli.options.place_options import ALLOW_WRITES, RUNTIME_OF_CAPSULE
from prismdbg.cli.options.user_code import USER_CODE
from prismdbg.cli.terminal import long_work
from prismdbg.errors import UsageError
from prismdbg.importers.formats import is_imported
from prismdbg.job_graph.builder import GraphRequest, build_graph
from prismdbg.job_graph.captured_rank import CapturedRequest, captured_graph, with_captured
from prismdbg.jobs.storage.archive_crypto import Keys
from prismdbg.jobs.storage.remote.fetched_cache import is_fetched
from prismdbg.jobs.storage.run_folder import RunFolder
from prismdbg.render import console
from prismdbg.simulate.graph import graph_file
from prismdbg.simulate.graph.job_graph import JobGraph
from prismdbg.simulate.graph.mesh import Mesh

GRAPH_SUFFIX = Path(graph_file.FILE_NAME).suffix


@click.command("build")
@click.argument("path", type=Fetched(exists=True), metavar="RUN|CAPSULE|TRACES")
@click.option(
    "--mesh",
    "mesh_text",
    metavar="AXES",
    help="Set the mesh axes and sizes, as in pp=2,dp=4,tp=2.  [default: that of an emulated RUN]",
)
@click.option(
    "--alike", metavar="AXES", help="Let a rank with a log represent the ranks that differ from it only along AXES."
)
@click.option("--step", type=click.IntRange(0), metavar="N", help="Use step N.  [default: the last complete step]")
@click.option(
    "--with", "captured", multiple=True, type=Fetched(exists=True), metavar="CAPSULE",
    help="Put this captured rank into the graph of RUN, at its own mesh coordinates.",
)  # fmt: skip
@click.option("--as-recorded", is_flag=True, help="Keep every rank's own times and the recorded transfers of RUN.")
@click.option(
    "--stretch", multiple=True, metavar="AXIS=SIZE",
    help="Change the size of the mesh axis AXIS to SIZE. All ranks along AXIS do the same work; message sizes stay.",
)  # fmt: skip
@click.option("--no-replay", is_flag=True, help="Use only the recording of CAPSULE and run nothing.")
@RUNTIME_OF_CAPSULE
@ALLOW_WRITES
@click.option("--timeout", type=seconds, default=3600.0, show_default=True, help="Limit the time of a replay.")
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), metavar="FILE",
    help="Write to FILE.  [default: RUN/graph.npz, CAPSULE.graph.npz or TRACES.graph.npz; for an"
    " address, NAME.graph.npz in the current folder]",
)  # fmt: skip
@USER_CODE
@archive_keys
def command(
    path: Path,
    mesh_text: str | None,
    alike: str | None,
    step: int | None,
    captured: tuple[Path, ...],
    as_recorded: bool,
    stretch: tuple[str, ...],
    no_replay: bool,
    runtime: str | None,
    allow_writes: bool,
    timeout: float,
    output: Path | None,
    keys: Keys,
) -> None:
    """Build the graph of one iteration from a RUN or a CAPSULE.

    Example: `prismdbg graph build RUN`, then `prismdbg graph simulate RUN`

    RUN is a recorded or an emulated job. The work between two collectives is one computation. With a memory
    trace, each operator is a computation with its memory: record RUN with --memory for that. A CAPSULE is replayed with
    tracing on. Its times between collectives are the recorded ones; the replay only divides them among the operators.
    Operators shorter than 1/2000 of the step are merged with their neighbours.

    TRACES are files of another tool that `prismdbg why` reads; they need --mesh.

    If all ranks do the same work, one CAPSULE is enough: pass --mesh dp=64,tp=8 --alike dp,tp. If ranks have roles,
    such as pipeline stages, put the capsule into the graph of a run that includes each role: RUN --with CAPSULE.
    """
    mesh = Mesh.parse(mesh_text) if mesh_text else None
    is_run = _is_run(path)
    if not is_run and (captured or as_recorded):
        option = "--with" if captured else "--as-recorded"
        raise UsageError(f"{option} needs a RUN, and {path} is a capsule", hint=f"give a RUN, or leave {option} out")
    if is_run and stretch and output is None:
        raise UsageError(
            f"--stretch changes the job, so its graph cannot replace the graph of {path}",
            hint=f"give another file: -o {path / 'stretched.npz'}",
        )
    axes = tuple(name.strip() for name in alike.split(",")) if alike else ()
    replayed = CapturedRequest(
        capsule=path,
        keys=keys,
        step=None if is_run else step,
        replay=not no_replay,
        runtime=runtime or "",
        allow_writes=allow_writes,
        timeout_s=timeout,
    )
    with long_work.shown():
        if is_run:
            graph = build_graph(GraphRequest(run=path, mesh=mesh, alike=axes, step=step, as_recorded=as_recorded))
        else:
            graph = captured_graph(replayed, mesh, axes, console.say)
        graph = _changed(graph, stretch, [replace(replayed, capsule=capsule) for capsule in captured])
    _save(graph, output or _default_output(path))


def _default_output(path: Path) -> Path:
    """In a run, beside anything else; here where it was fetched: the copy stays as the store has it."""
    if is_fetched(path):
        return Path.cwd() / f"{path.name}.graph.npz"
    inside = RunFolder(path).run_json.is_file()
    return path / graph_file.FILE_NAME if inside else path.with_name(f"{path.name}.graph.npz")


def _changed(graph: JobGraph, stretch: Sequence[str], captured: Iterable[CapturedRequest]) -> JobGraph:
    """Of other sizes along its axes; then with captured ranks, which keep the coordinates of the job that ran."""
    ran_on = graph.mesh
    for axis, size in what_if_options.sizes(stretch):
        graph = graph.stretched(axis, size)
    for request in captured:
        graph = with_captured(graph, request, console.say, ran_on)
    return graph


def _is_run(path: Path) -> bool:
    """False for a capsule; `UsageError` for anything else."""
    if path.suffix == GRAPH_SUFFIX:
        raise UsageError(
            f"{path} is a graph, not a run or a capsule",
            hint="give the RUN or CAPSULE from which it was built, and another file with -o",
        )
    is_run = RunFolder(path).run_json.is_file() or (not (path / layout.MANIFEST).is_file() and is_imported(path))
    if not is_run and path.is_dir() and not (path / layout.MANIFEST).is_file():
        raise UsageError(f"{path} is neither a run folder nor a capsule", hint="run `prismdbg list` to see what exists")
    return is_run


def _save(graph: JobGraph, path: Path) -> None:
    with output_file.whole(path) as temporary:
        graph_file.save(graph, temporary)
    for doubt in graph.origin.doubts:
        console.say(f"not reliable: {doubt}")
    peak_bytes = max((rank_class.entries.peak_bytes() for rank_class in graph.classes), default=0)
    least = "at least " if any(rank_class.entries.holds_more for rank_class in graph.classes) else ""
    memory = f", a memory peak of {least}{console.size(peak_bytes)}" if peak_bytes else ""
    console.say(f"{path}: {graph.in_short}{memory}, {console.size(path.stat().st_size)}")
