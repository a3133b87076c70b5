"""`prismdbg open`: what a capsule recorded, or a whole simulated job, on a screen to walk through. Runs nothing."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import click

from prismdbg.cli.options.addresses import Fetched
from prismdbg.cli.options.archive_keys import archive_keys, as_options
from prismdbg.cli.options.capsule_or_run import RANK_OF_RUN, capsule_at, shown_capsule_at
from prismdbg.cli.options.param_types import moment
from prismdbg.cli.options.picture_options import pictured
from prismdbg.cli.options.place_options import PORT, WEB
from prismdbg.cli.options.user_code import USER_CODE, tell_children
from prismdbg.cli.terminal import long_work
from prismdbg.errors import UsageError
from prismdbg.job_graph.job_view import NoGraph, is_job, job_view
from prismdbg.jobs.run_overview import is_recorded_job, read_overview, read_rows
from prismdbg.jobs.storage.archive_crypto import Keys
from prismdbg.jobs.storage.pack import opened
from prismdbg.model.moment import Moment
from prismdbg.render import console
from prismdbg.sweep.marker import is_sweep

if TYPE_CHECKING:
    from prismdbg_tui.still_picture import StillPicture

LONGEST_S = 600.0  # without a collective or a command


@click.command()
@click.argument("capsule", type=Fetched(), metavar="CAPSULE|RUN|GRAPH|SWEEP|TRACES")
@RANK_OF_RUN
@click.option(
    "--cluster",
    type=click.Path(path_type=Path),
    metavar="YAML",
    help="Simulate a whole job on this cluster.  [default: that of the SWEEP, else assumed figures]",
)
@click.option("--at", type=moment, help="Place the cursor at MOMENT, as in 12.3.  [default: the incident]")
@WEB
@PORT
@pictured
@USER_CODE
@archive_keys
def command(
    capsule: Path,
    rank: int | None,
    cluster: Path | None,
    at: Moment | None,
    web: bool,
    port: int,
    picture: StillPicture | None,
    keys: Keys,
) -> int:
    """View CAPSULE (folder or packed file): its timeline, collectives, stacks and received data.

    Example: `prismdbg open RUN`, or `prismdbg open CAPSULE --at 11.1`

    A recorded RUN opens as a table of all ranks, with what `prismdbg why` finds: how far each rank got, how long it
    waited, and how long the others waited for it. From there you can open each rank; --at sets the moment. With --rank,
    only that rank opens; if it cannot be replayed, its log is shown. TRACES, files of another tool that `prismdbg why`
    reads, open as such a table, too; they contain no capsule, so no rank can be opened from there.

    An emulated RUN, or a GRAPH from `prismdbg graph build`, opens as a map of all ranks by mesh coordinates. From there
    you can open each rank. With --rank, only that rank opens. If the logs are not sufficient for a map, the ranks that
    ran open as a table.

    A SWEEP, the folder of `prismdbg sweep`, opens as a table of its configurations. From there you can open each of
    their runs.

    If the log of the capsule ends before the MOMENT of --at, the cursor is at the last collective, and the line above
    the keys says so.

    Nothing runs, and nothing in the capsule is trusted. Without a terminal, a table of the collectives, the ranks or
    the configurations is printed.
    """
    whole_job = rank is None and is_job(capsule)
    all_recorded = rank is None and is_recorded_job(capsule)
    is_compared = rank is None and is_sweep(capsule)
    if cluster is not None and not (whole_job or is_compared):
        raise UsageError("--cluster needs a whole job", hint="give an emulated RUN or a GRAPH, and leave --rank out")
    if at is not None and (whole_job or is_compared):
        raise UsageError("--at needs a recorded run or one rank", hint="choose a rank with --rank, or leave --at out")
    if web and picture is not None:
        raise UsageError("--picture cannot be combined with --web", hint="choose one of them")
    if web:
        from prismdbg_tui.browser.server import serve

        tell_children()
        options = ["--cluster", str(cluster.absolute())] if cluster is not None else []
        options += ["--at", str(at)] if at else []
        options += as_options(keys)
        all_ranks = whole_job or all_recorded
        shown = (capsule if all_ranks or is_compared else shown_capsule_at(capsule, rank)).absolute()
        run, has_moments = str(shown) if all_ranks else "", not (whole_job or is_compared)
        return serve(["open", str(shown), *options], port, sys.stderr, run=run, has_moments=has_moments)
    if is_compared:
        return _compared(capsule, cluster, picture)
    if whole_job:
        return _all_ranks(capsule, cluster, picture)
    if all_recorded:
        return _all_recorded(capsule, picture, at)
    told: list[str] = []
    from prismdbg_tui import start

    with ExitStack() as stack:
        with long_work.shown():  # not beside the screen
            capsule = shown_capsule_at(capsule, rank, told)
            whole = stack.enter_context(opened(capsule, keys))
        name = capsule.name or str(capsule)
        return start.look(whole, name, at, path=capsule.absolute(), picture=picture, told=told)


def _compared(path: Path, cluster: Path | None, picture: StillPicture | None) -> int:
    from prismdbg_tui import start

    from prismdbg.sweep.stored import read_sweep

    def open_run(run: Path, of_sweep: Path | None) -> int:
        return _all_ranks(run, cluster or of_sweep) if is_job(run) else _all_recorded(run)

    return start.compared(lambda: read_sweep(path), open_run, picture)


def _all_ranks(path: Path, cluster: Path | None, picture: StillPicture | None = None) -> int:
    from prismdbg_tui import start

    try:
        with long_work.shown():
            view = job_view(path, cluster, console.say)
    except NoGraph as error:
        if cluster is not None:
            raise
        console.say(f"{error}")
        console.say(f"the ranks that ran are shown; for all ranks {error.hint}")
        return _all_recorded(path, picture, note=f"only the ranks that ran: {error.why}")

    def into(rank: int, runs: bool) -> None:
        _one_rank(path, rank, runs)

    return start.overview(view, into, picture)


def _all_recorded(path: Path, picture: StillPicture | None = None, at: Moment | None = None, note: str = "") -> int:
    """`note`: what the table's status line says."""
    from prismdbg_tui import start

    def open_rank(rank: int, runs: bool, moment: Moment | None) -> None:
        _one_rank(path, rank, runs, moment)

    if picture is None and not start.on_terminal():
        with long_work.shown():
            rows = read_rows(path)
        return start.listed_job(rows)
    with long_work.shown():
        first = [read_overview(path)]
    return start.recorded_job(lambda: first.pop() if first else read_overview(path), open_rank, picture, at, note)


def _one_rank(run: Path, rank: int, runs: bool, at: Moment | None = None) -> None:
    """Its recording, or, where it `runs`, its program again; then the screen of all ranks again."""
    from prismdbg_tui import start

    told: list[str] = []
    with ExitStack() as stack:
        with long_work.shown():
            whole = stack.enter_context(opened((capsule_at if runs else shown_capsule_at)(run, rank, told)))
        name, path = whole.path.name, whole.path
        if runs:
            from prismdbg.jobs.replay.replay_plan import ReplayRequest

            request = ReplayRequest(capsule=whole)
            start.debug(request, name, sys.stderr, LONGEST_S, at, above=True, path=path, told=told)
        else:
            start.look(whole, name, at, above=True, path=path, told=told)
