"""`prismdbg memory`: where memory went between the collectives of one rank."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import click

from prismdbg.capsule.new_file import check_place
from prismdbg.cli.options.addresses import Fetched
from prismdbg.cli.options.archive_keys import archive_keys
from prismdbg.cli.options.capsule_or_run import capsule_at
from prismdbg.cli.options.limit_options import limits
from prismdbg.cli.options.param_types import device as device_type
from prismdbg.cli.options.param_types import moment as moment_type
from prismdbg.cli.options.param_types import seconds
from prismdbg.cli.options.place_options import ALLOW_WRITES, RUNTIME_OF_CAPSULE
from prismdbg.cli.options.snapshot_options import grouping_of, snapshot_trace
from prismdbg.cli.options.user_code import USER_CODE
from prismdbg.cli.terminal import long_work
from prismdbg.errors import UsageError
from prismdbg.importers.memory_snapshot import is_snapshot
from prismdbg.jobs.capture.packed_memory import whole_trace
from prismdbg.jobs.replay.memory_trace import modelled_backend, recorded_trace, require_emulated, traced_replay
from prismdbg.jobs.replay.replay import ReplayRequest
from prismdbg.jobs.replay.span import require_inside
from prismdbg.jobs.replay.verdict import Outcome
from prismdbg.jobs.storage.archive_crypto import Keys
from prismdbg.jobs.storage.pack import opened
from prismdbg.memory.backend import BackendModel
from prismdbg.memory.curve import curve
from prismdbg.memory.difference import diff
from prismdbg.memory.flame import write_flame
from prismdbg.memory.grouping import By, Entry, grouped
from prismdbg.memory.live import Live, live_at
from prismdbg.memory.peak import Peak, peak
from prismdbg.memory.snapshot import write_snapshot
from prismdbg.memory.trace import MemoryTrace, open_trace
from prismdbg.memory.trace_end import trace_end
from prismdbg.model.moment import Moment
from prismdbg.render import console, memory_text
from prismdbg.runtime.limits import Asked

_BYS = [by.value for by in By]
_MORE = "--top"
_NOTHING = "nothing was traced in this range"


@click.command()
@click.argument("path", type=Fetched(), metavar="CAPSULE|RUN|TRACE|SNAPSHOT")
@click.option(
    "--rank", type=click.IntRange(min=0), metavar="N", help="Select a rank of RUN.  [default: the first with a trace]"
)
@click.option(
    "--by",
    type=click.Choice(_BYS),
    metavar="KEY",
    help="Group live blocks by size, stack, age, module or op.  [default: op; stack for a SNAPSHOT without operators]",
)
@click.option(
    "--at", type=moment_type, metavar="MOMENT", help="Show the blocks that are live at MOMENT instead of at the peak."
)
@click.option(
    "--diff",
    "between",
    type=(moment_type, moment_type),
    metavar="M1 M2",
    help="Show the memory growth from M1 to M2.",
)
@click.option(
    "--begin", type=moment_type, metavar="MOMENT", help="Begin the curve and the search for the peak at MOMENT."
)
@click.option(
    "--end", type=moment_type, metavar="MOMENT", help="End the curve and the search for the peak before MOMENT."
)
@click.option(
    "--made-inside", is_flag=True, help="Count only blocks allocated from --begin to --end, as torch.profiler does."
)
@click.option(
    "--device",
    type=device_type,
    metavar="DEVICE",
    help="Show the memory of DEVICE: cpu, cuda:0, ...  [default: largest peak]",
)
@click.option("--with-backend", is_flag=True, help="Also count blocks of the backend.")
@click.option(
    "--top", type=click.IntRange(min=1), default=12, show_default=True, metavar="N", help="Show the N largest groups."
)
@click.option(
    "--export", type=click.Path(path_type=Path), metavar="FILE", help="Write a snapshot for memory_viz to FILE."
)
@click.option(
    "--flame",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Write the blocks live at the peak, or at --at, to FILE as a flame graph for speedscope.",
)
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
@RUNTIME_OF_CAPSULE
@ALLOW_WRITES
@click.option(
    "--until", type=moment_type, metavar="MOMENT",
    help="Replay CAPSULE up to MOMENT.  [default: the first call after the end moment]",
)  # fmt: skip
@click.option(
    "--keep",
    type=click.Path(path_type=Path),
    metavar="TRACE",
    help="Keep the trace of the replay in TRACE.",
)
@limits
@click.option(
    "--timeout", type=seconds, default=3600.0, show_default=True, help="Limit the time of the replay of CAPSULE."
)
@USER_CODE
@archive_keys
def command(
    path: Path,
    rank: int | None,
    by: str | None,
    at: Moment | None,
    between: tuple[Moment, Moment] | None,
    begin: Moment | None,
    end: Moment | None,
    made_inside: bool,
    device: int | None,
    with_backend: bool,
    top: int,
    export: Path | None,
    flame: Path | None,
    as_json: bool,
    runtime: str | None,
    allow_writes: bool,
    until: Moment | None,
    keep: Path | None,
    timeout: float,
    keys: Keys,
    limits: Asked,
) -> None:
    """Show the peak memory of a rank, the allocation that caused it, and the blocks that were live at the peak.

    Example: `prismdbg memory RUN --rank 0 --diff 20.2 21.2 --by stack`

    A TRACE is the folder that `record --memory` writes into a RUN and its capsules. A CAPSULE without a trace is
    replayed with tracing on. With --until or --keep, so is any CAPSULE and an emulated rank of RUN. Blocks that were
    allocated before the start moment are then shown as a separate group. If some of these blocks are unknown, all
    totals are lower bounds. The memory of the communication backend is listed separately. The memory of one device is
    shown at a time. An emulated rank has no backend: prismdbg estimates the buffers that gloo would allocate.

    A SNAPSHOT is a file of torch.cuda.memory._dump_snapshot. It has no collectives: moment 0.0.N is before the N-th
    entry of its history.
    """
    for place in filter(None, (export, flame)):
        check_place(place)
    if is_snapshot(path):
        needs_job = {"--rank": rank is not None, "--until": until, "--keep": keep, "--with-backend": with_backend}
        read = _Found(trace=snapshot_trace(path, needs_job | {"--runtime": runtime, "--allow-writes": allow_writes}))
        shown = _Shown(by=grouping_of(read.trace, by), top=top, as_json=as_json)
    else:
        read = _trace(
            path, rank, runtime or "", until, keep, timeout, allow_writes=allow_writes, keys=keys, limits=limits
        )
        shown = _Shown(by=By(by or By.OP), top=top, as_json=as_json)
    if device is not None:
        read = replace(read, trace=read.trace.on(device))
    read.trace.require(*(between or ()), *([at] if at is not None else []))
    if export is not None:
        write_snapshot(read.trace, export)
        console.say(f"{export}: open it at https://pytorch.org/memory_viz")
    if between is not None and flame is not None:
        raise UsageError("--flame shows the blocks of one moment", hint="give --at MOMENT instead of --diff")
    if between is not None:
        _show_growth(read.trace, between, shown)
        return
    if at is not None:
        _write_flame(live_at(read.trace, at), f"live at {at}", flame)
        _show_live(read.trace, at, shown)
        return
    highest = peak(read.trace, begin, end, made_inside=made_inside, with_backend=with_backend)
    if highest is None:
        read.trace.require(*filter(None, (begin, end)))
        _show_nothing(flame, shown)
        return
    _write_flame(highest.live, f"live at the peak, {highest.moment}", flame)
    backend = modelled_backend(path, rank)
    if not as_json:
        points = memory_text.curve_points()
        drawn = curve(read.trace, points, begin, end, made_inside=made_inside, with_backend=with_backend)
        console.emit(memory_text.curve_text(drawn))
    _show_peak(read, highest, backend, shown)


def _show_nothing(flame: Path | None, shown: _Shown) -> None:
    if flame is not None:
        raise UsageError(f"{_NOTHING}: --flame has no blocks to show", hint="give another --begin or --end")
    console.say(_NOTHING)
    if shown.as_json:
        shown.print(memory_text.NO_PEAK_JSON)


def _write_flame(live: Live, name: str, path: Path | None) -> None:
    if path is not None:
        write_flame(live, name, path)
        console.say(f"{path}: open it at https://www.speedscope.app, left heavy or sandwich")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Shown:
    """How a result is printed. `top`: how many groups of blocks, made by `by`."""

    by: By
    top: int
    as_json: bool

    def groups(self, live: Live) -> list[Entry]:
        """As JSON only those that are shown; a text says how many more there are."""
        found = grouped(live, self.by)
        return found[: self.top] if self.as_json else found

    def print(self, what: object) -> None:
        if self.as_json:
            console.emit_json(what)
        else:
            console.emit(memory_text.for_terminal(str(what)))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Found:
    """`b`: the capsule's last collective, where there is one. stands: where the replayed rank was stopped."""

    trace: MemoryTrace
    b: Moment | None = None
    stands: Moment | None = None


def _show_growth(trace: MemoryTrace, between: tuple[Moment, Moment], shown: _Shown) -> None:
    found = diff(trace, *between)
    if shown.as_json:
        shown.print(memory_text.difference_json(found, shown.by, shown.top))
    else:
        shown.print(memory_text.difference_text(found, shown.by, shown.top, _MORE))


def _show_live(trace: MemoryTrace, at: Moment, shown: _Shown) -> None:
    live = live_at(trace, at)
    groups = shown.groups(live)
    if shown.as_json:
        shown.print(memory_text.live_json(live, at, groups))
    else:
        shown.print(memory_text.live_text(live, at, groups, top=shown.top, option=_MORE))


def _show_peak(read: _Found, highest: Peak, backend: BackendModel | None, shown: _Shown) -> None:
    ends = trace_end(read.trace, b=read.b, stands=read.stands)
    found = read.trace, highest, shown.groups(highest.live), ends, backend
    if shown.as_json:
        shown.print(memory_text.peak_json(*found))
    else:
        shown.print(memory_text.peak_text(*found, top=shown.top, option=_MORE))


def _trace(
    path: Path,
    rank: int | None,
    runtime: str,
    until: Moment | None,
    keep: Path | None,
    timeout_s: float,
    *,
    allow_writes: bool,
    keys: Keys,
    limits: Asked,
) -> _Found:
    folder = recorded_trace(path, rank)
    if folder is not None and until is None and keep is None:
        return _Found(trace=open_trace(folder))
    if folder is not None:
        require_emulated(path, "--until" if keep is None else "--keep")
    with long_work.shown(), opened(capsule_at(path, rank), keys) as capsule:
        require_inside(capsule.manifest, capsule.path.name, "--until", until)
        b = capsule.manifest.moment_b
        recorded = whole_trace(capsule) if until is None and keep is None else None
        if recorded is not None:
            console.say("as recorded, from the job's start")
            return _Found(trace=open_trace(recorded), b=b)
        request = ReplayRequest(capsule=capsule, runtime=runtime, allow_writes=allow_writes, limits=limits)
        replayed = traced_replay(request, console.announce, until=until, timeout_s=timeout_s, keep=keep)
        same = replayed.verdict.outcome not in (Outcome.DIVERGED, Outcome.RANK_LOST)
        return _Found(trace=replayed.trace, b=b if same else None, stands=replayed.stands)
