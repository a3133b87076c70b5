"""`prismdbg emulate`: runs chosen ranks of a large world, one after another, each alone among synthesized peers."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median

from prismdbg.emulate.collective_mismatch import Fit, fit_of, logs_of, mesh_problem
from prismdbg.emulate.emulated_rank import EmulatedRank
from prismdbg.emulate.external_donors import write_external
from prismdbg.emulate.kept_values import KeptValues
from prismdbg.emulate.rank_group import RankGroup
from prismdbg.emulate.rank_scheduler import RankScheduler
from prismdbg.emulate.request import EmulateRequest
from prismdbg.emulate.together import RanksAtOnce
from prismdbg.errors import UsageError
from prismdbg.job_graph.builder import iteration_of
from prismdbg.job_graph.cpu_waits import displaced
from prismdbg.jobs.capture.agent_sockets import make_socket_dir
from prismdbg.jobs.capture.capture import Say
from prismdbg.jobs.injection import make_inject_folder
from prismdbg.jobs.record.launch_line import LaunchLine, parse
from prismdbg.jobs.storage.classes_file import write_classes
from prismdbg.jobs.storage.run_folder import RunFolder, describe_run, read_json, write_json
from prismdbg.log.rank_log import read_log
from prismdbg.model.plurals import counted
from prismdbg.simulate.graph.class_finder import RankClasses, find_classes
from prismdbg.simulate.graph.entries import Entries

_OWN_FILES = ("run.json", "config*.json", "environment.json")
_OWN_FOLDERS = ("inject", "ranks", "output", "donors", "external", "memory")


@dataclass(frozen=True, slots=True, kw_only=True)
class RankRun:
    """`is_whole`: its program came to its end; else it was needed for its values only. displaced: in this share of its
    steps, the median of them, it waited for a CPU."""

    rank: int
    wall_s: float
    is_whole: bool
    displaced: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Emulated:
    """`runs`: every rank that ran, also those that nobody asked for, in the order in which they were started. fit:
    whether those that came to their end fit together."""

    runs: tuple[RankRun, ...]
    classes: RankClasses | None
    fit: Fit = field(default_factory=Fit)


def emulate(request: EmulateRequest, say: Say) -> Emulated:
    request.check()
    line = parse(request.command)
    line.check_program()
    was_there = request.output.exists()
    run = RunFolder.new(request.output)
    try:
        return _emulate(request, run, line, say)
    except BaseException:
        _forget(run, was_there)
        raise


def _emulate(request: EmulateRequest, run: RunFolder, line: LaunchLine, say: Say) -> Emulated:
    _prepare(request, run)
    sockets = make_socket_dir()
    crew = RankGroup(request, run, line, sockets, say)
    try:
        if request.donor is not None:
            count = write_external(RunFolder.existing(request.donor), request.mesh, run.path / "external")
            none = "" if count else ": no rank there sent what another one cannot synthesize, so it changes nothing"
            say(f"{counted(count, 'donor value')} in {request.donor}{none}")
        at_once = RanksAtOnce(crew.give, crew.go, KeptValues(run.path / "donors"), request.bound_s)
        found = _run_on_its_mesh(request, run, RankScheduler(at_once.go), at_once)
        if found is not None:
            crew.tell_ranks(tuple(sorted(found.ran)))
            _tell_ranks(run, sorted(found.ran))
        runs = tuple(_told(run, each) for each in crew.ranks.values())
    finally:
        crew.close()
        shutil.rmtree(sockets, ignore_errors=True)
    return Emulated(runs=runs, classes=found, fit=fit_of(run, request))


def _forget(run: RunFolder, was_there: bool) -> None:
    """A start that failed is no run: where no rank left anything the same command may be given again. What is not ours
    stays, and so does a folder that was there."""
    if run.rank_folders():
        return
    for path in (path for pattern in (*_OWN_FILES, *_OWN_FOLDERS) for path in run.path.glob(pattern)):
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)
    if not was_there:
        with contextlib.suppress(OSError):
            run.path.rmdir()


def _told(run: RunFolder, ended: EmulatedRank) -> RankRun:
    shares = displaced(read_log(run.latest(ended.rank))).values() if ended.has_ended else ()
    return RankRun(
        rank=ended.rank, wall_s=ended.wall_s, is_whole=ended.has_ended, displaced=median(shares) if shares else 0.0
    )


def _run_on_its_mesh(
    request: EmulateRequest, run: RunFolder, scheduler: RankScheduler, at_once: RanksAtOnce
) -> RankClasses | None:
    """What goes wrong on a mesh that is not the program's is said to be that."""
    try:
        return _run(request, run, scheduler, at_once)
    except UsageError as error:
        wrong = mesh_problem(logs_of(run), request.mesh)
        if wrong is None:
            raise
        raise wrong from error


def _run(request: EmulateRequest, run: RunFolder, scheduler: RankScheduler, at_once: RanksAtOnce) -> RankClasses | None:
    if request.classes is None:
        for circle in request.circles:
            if len(circle) > 1:
                at_once.complete(circle, scheduler.supply)
            else:
                scheduler.complete(circle[0])
        return None

    def iteration(rank: int) -> Entries:
        scheduler.complete(rank)
        return iteration_of(read_log(run.latest(rank)), request.mesh)

    found = find_classes(request.mesh, iteration, differ=request.classes or None, checks=request.checks)
    write_classes(run, found)
    return found


def _tell_ranks(run: RunFolder, ran: Sequence[int]) -> None:
    described = read_json(run.run_json)
    described["emulated"]["ranks"] = list(ran)
    write_json(run.run_json, described)


def _prepare(request: EmulateRequest, run: RunFolder) -> None:
    make_inject_folder(run.inject)
    describe_run(
        run,
        request.command,
        {
            "emulated": {
                "world": request.world,
                "mesh": dict(request.axes),
                "ranks": list(request.chosen) if request.classes is None else [],  # found out by running some
                "classes": None if request.classes is None else list(request.classes),
                "together": list(request.together),
                "steps": request.steps,
                "peers": [f"{rule.axis}:{rule.op}={rule.policy}" for rule in request.rules],
                "seed": request.seed,
            },
        },
    )
