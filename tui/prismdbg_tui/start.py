"""Starts the application where there is a terminal; says the same as a plain table where there is none."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TextIO, TypeVar

from prismdbg.capsule.capsule_dir import Capsule
from prismdbg.errors import PrismError
from prismdbg.model.moment import Moment
from prismdbg_tui.refusals import why_refused

if TYPE_CHECKING:
    from prismdbg.debugger.debugger import Debugger
    from prismdbg.debugger.time_travel import Travel
    from prismdbg.job_graph.job_view import JobView
    from prismdbg.jobs.replay.replay_plan import ReplayRequest
    from prismdbg.jobs.run_overview import RankRow, RunOverview
    from prismdbg.session.trace_place import TracePlace
    from prismdbg.sweep.stored import StoredSweep
    from prismdbg_tui.screens.pictured_app import PicturedApp
    from prismdbg_tui.session.live import LiveRank
    from prismdbg_tui.session.sidecar import Sidecar
    from prismdbg_tui.still_picture import StillPicture

Returned = TypeVar("Returned")
END_BOUND_S = 30.0
READ_BOUND_S = 600.0
WEB_DRIVER = "prismdbg_tui.browser.driver:EndingWebDriver"
WEB_PAGE = "PRISMDBG_PAGE"  # the address of a page, for what draws it; without a moment


def on_terminal() -> bool:
    """All three streams (the screen is drawn on the third), and one that can place its cursor; or a browser."""
    if os.environ.get("TEXTUAL_DRIVER") == WEB_DRIVER:
        return True
    return all(stream.isatty() for stream in (sys.stdin, sys.stdout, sys.stderr)) and os.environ.get(
        "TERM", "dumb"
    ) not in ("dumb", "")


def _shown(app: PicturedApp[Returned], picture: StillPicture | None, bound_s: float = READ_BOUND_S) -> Returned | None:
    """What it ends with; a picture ends with nothing. `bound_s`: how long a picture may wait for the same thing."""
    if picture is None:
        return app.run()
    picture.take(app, bound_s)
    return None


def own_keys(table: str = "") -> dict[str, str]:
    """The user's keys for a screen. `UsageError` says, before it starts, what is wrong with them or with the theme."""
    from prismdbg_tui.drawing.themes import own_theme
    from prismdbg_tui.session import keymap

    own_theme()
    return keymap.own_keys(table)


def look(
    capsule: Capsule,
    name: str,
    at: Moment | None = None,
    *,
    above: bool = False,
    path: Path | None = None,
    picture: StillPicture | None = None,
    told: Sequence[str] = (),
) -> int:
    """The exit code. `above`: there is a screen to go back to. path: as it was named, a folder or a packed file; what
    is kept of this session lies beside it. picture: of the first screen, in place of one on the terminal. told: what
    was said on the way here."""
    if picture is None and not on_terminal():
        from prismdbg_tui.session.plain_table import write_table

        write_table(capsule, sys.stdout)
        return 0
    from prismdbg_tui.session.app import PrismApp

    app = PrismApp(capsule, name, keys=own_keys(), at=at, above=above, sidecar=_sidecar(path, picture), told=told)
    return _shown(app, picture) or 0


def overview(view: JobView, into: Callable[[int, bool], None], picture: StillPicture | None = None) -> int:
    """All ranks, again and again after a rank that one went into. `into`: shows a rank, or lets it run again."""
    from prismdbg_tui.overview.job import overview_job

    job = overview_job(view)
    if picture is None and not on_terminal():
        from prismdbg_tui.overview.plain_ranks import write_ranks

        write_ranks(job, sys.stdout)
        return 0
    from prismdbg_tui.overview.app import OverviewApp
    from prismdbg_tui.overview.keys import TABLE

    keys, rank, refused = own_keys(TABLE), None, ""
    while True:
        app = OverviewApp(job, keys=keys, at=rank, refused=refused)
        drop = _shown(app, picture)
        if drop is None:
            return app.return_code or 0
        rank = drop.rank
        refused = why_refused(partial(into, drop.rank, drop.runs))


def listed_job(ranks: Sequence[RankRow]) -> int:
    """All ranks of a recorded run as a plain table, where there is no terminal. The exit code."""
    from prismdbg_tui.recorded_job.plain_job import write_job

    write_job(ranks, sys.stdout)
    return 0


def recorded_job(
    read: Callable[[], RunOverview],
    open_rank: Callable[[int, bool, Moment | None], None],
    picture: StillPicture | None = None,
    at: Moment | None = None,
    note: str = "",
) -> int:
    """All ranks of a run, again and again after a rank that was opened; `listed_job` needs no terminal. `read`: the
    run, also while its job runs. `open_rank`: shows a rank, or lets it run again, at a moment of it. at: that moment,
    in place of that of the finding. note: of an emulated run, why there is no map of all its ranks."""
    job = read()
    from prismdbg_tui.recorded_job.app import JobApp
    from prismdbg_tui.recorded_job.keys import TABLE

    keys, rank, part, refused = own_keys(TABLE), -1, None, ""
    while True:
        app = JobApp(job, read, keys=keys, at=rank, moment=at, refused=refused, note=note, part=part)
        chosen = _shown(app, picture)
        if chosen is None:
            return app.return_code or 0
        job, rank, at = app.job, chosen.rank, app.wanted
        part = app.part if app.map_shown else None
        refused = why_refused(partial(open_rank, chosen.rank, chosen.runs, chosen.at))


def compared(
    read: Callable[[], StoredSweep],
    open_run: Callable[[Path, Path | None], object],
    picture: StillPicture | None = None,
) -> int:
    """The configurations of a sweep, again and again after one that was opened. `open_run`: shows all its ranks, on the
    cluster of the sweep, if it has one."""
    sweep = read()
    if picture is None and not on_terminal():
        from prismdbg_tui.compared.plain_sweep import write_sweep

        write_sweep(sweep, sys.stdout)
        return 0
    from prismdbg_tui.compared.app import SweepApp
    from prismdbg_tui.compared.keys import TABLE

    keys, chosen, refused = own_keys(TABLE), "", ""
    while True:
        app = SweepApp(read, keys=keys, at=chosen, refused=refused)
        name = _shown(app, picture)
        if name is None:
            return app.return_code or 0
        chosen = name
        refused = why_refused(partial(open_run, app.sweep.run(name), app.sweep.cluster))


def debug(
    request: ReplayRequest,
    name: str,
    talk: TextIO,
    bound_s: float,
    at: Moment | None = None,
    *,
    above: bool = False,
    path: Path | None = None,
    picture: StillPicture | None = None,
    told: Sequence[str] = (),
) -> int:
    """Runs the rank under the screen, at first to `at`; when this returns nothing of the replay is left. `bound_s`: how
    long the rank may run without another collective. `above`: there is a screen to go back to. path, picture, told: as
    in `look`."""
    from prismdbg_tui.session.app import PrismApp

    keys, sidecar = own_keys(), _sidecar(path, picture)
    first = _first_lines(request.capsule)
    live = live_rank(request, bound_s, at, _kept_lines(sidecar, first))
    app = PrismApp(
        request.capsule, name, live=live, keys=keys, at=at, above=above, sidecar=sidecar, first_lines=first, told=told
    )
    try:
        code = _shown(app, picture, bound_s + END_BOUND_S) or 0
    finally:
        live.close()
        if not live.wait(1.0):
            print("prismdbg: ending the replay ...", file=talk, flush=True)
            live.wait(END_BOUND_S)
    if why := app.state.why_exit_code:
        print(f"prismdbg: {why}", file=talk, flush=True)
    return code or app.state.exit_code


def _first_lines(capsule: Capsule) -> tuple[str, ...]:
    """That lead to the incident."""
    from prismdbg.debugger.recorded_nan import nan_since
    from prismdbg.session.breakpoint_line import first_breakpoints

    return first_breakpoints(capsule.manifest.incident.kind, nan_since(capsule))


def _sidecar(path: Path | None, picture: StillPicture | None) -> Sidecar:
    """Nobody sets a breakpoint or writes a note in a picture, so nothing is kept of it."""
    from prismdbg_tui.session.sidecar import Sidecar, beside

    return Sidecar(beside(path) if path is not None else None, keeps=picture is None)


def _kept_lines(sidecar: Sidecar, first: tuple[str, ...]) -> tuple[str, ...]:
    """What sets the breakpoints and watches of the last session; `first` where none was kept. The screen says what is
    wrong with a damaged file."""
    try:
        kept = sidecar.read().lines
    except PrismError:
        return first
    return first if kept is None else kept


def live_rank(
    request: ReplayRequest,
    bound_s: float = 600.0,
    at: Moment | None = None,
    lines: tuple[str, ...] | None = None,
) -> LiveRank:
    """`lines`: carried out at first; None: those that lead to the incident."""
    from prismdbg.debugger.debugger import debug as debug_capsule
    from prismdbg.debugger.driver import Settings, Tell
    from prismdbg.debugger.time_travel import open_travel
    from prismdbg_tui.session.live import LiveRank

    def debugger(travel: Travel, tell: Tell) -> Debugger:
        settings = Settings(bound_s=bound_s)
        return debug_capsule(travel, tell, settings=settings, how_it_ended=lambda: _how_it_ended(travel))

    begun = _first_lines(request.capsule) if lines is None else lines
    first = (*begun, *((f"goto {at}",) if at else ()))
    return LiveRank(lambda say: open_travel(request, say), debugger, first, _trace)


def _trace(debugger: Debugger) -> TracePlace:
    """What the rank's tracer writes, or wrote when it was recorded, as this side sees it."""
    return debugger.memory_place()


def _how_it_ended(travel: Travel) -> str:
    try:
        return f"its process ended with {travel.running.wait(END_BOUND_S)}"
    except PrismError as error:
        return str(error)
