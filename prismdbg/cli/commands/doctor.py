"""`prismdbg doctor`: what this machine can do, what it lacks, and the fix."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict
from pathlib import Path

import click

from prismdbg.checkpoint import choice
from prismdbg.cli.exit_codes import ExitCode
from prismdbg.cli.options.addresses import LocalPath
from prismdbg.cli.terminal import long_work
from prismdbg.errors import UsageError
from prismdbg.jobs.capture.reach import Reach, reach_of_ranks
from prismdbg.jobs.injection import cache_dir
from prismdbg.jobs.storage.run_folder import RunFolder
from prismdbg.render import console
from prismdbg.runtime.facilities import Facility, facilities

_OPTIONAL = frozenset({"gpu", "sensors", "gpu sensors"})
_FROM = {"checkpoint": "a checkpoint", "program's start": "the program's start"}


@click.command()
@click.option(
    "--job",
    "run",
    metavar="RUN",
    type=LocalPath(),
    help="Check whether each rank of the job in RUN can be captured, instead of checking this machine.",
)
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
@long_work.shown()
def command(run: Path | None, as_json: bool) -> int:
    """Check the requirements of prismdbg on this machine: what each is needed for, what was found, how to fix it.

    Example: `prismdbg doctor --job RUN`

    The exit code is 0 if no requirement is missing except optional ones, and 4 otherwise.

    With --job, it shows for each rank whether it can be captured now from this machine, and with which origin. The exit
    code is 4 if a rank cannot be captured at all.
    """
    if run is not None:
        return _of_job(run, as_json)
    found = facilities(cache_dir(), choice.NAME, lambda: choice.find().program.version)
    lacking = [f for f in found if not f.ok and not _is_optional(f)]
    with console.also_unread():
        if as_json:
            console.emit_json({"facilities": [asdict(f) for f in found], "origins": _origins(found)})
        else:
            _show(found)
    return ExitCode.LACKING if lacking else ExitCode.OK


def _show(found: Iterable[Facility]) -> None:
    rows = [(_state(f), f.name, f.needed_for, f.detail) for f in found]
    console.emit(console.columns(("", "requirement", "needed for", "found"), rows))
    for facility in found:
        if facility.fix:
            console.emit(f"\n{facility.name}: {facility.fix}")
    for origin, can in _origins(found).items():
        console.say(f"capsules from {_FROM[origin]}: {'yes' if can else 'no'}")


def _state(facility: Facility) -> str:
    if facility.ok:
        return "ok"
    return "optional" if _is_optional(facility) else "no"


def _is_optional(facility: Facility) -> bool:
    return facility.name.lower() in _OPTIONAL


def _of_job(run: Path, as_json: bool) -> int:
    ranks = reach_of_ranks(RunFolder.existing(run))
    if not ranks:
        raise UsageError(f"{run} contains no data of any rank", hint="wait until a rank has issued a collective")
    with console.also_unread():
        if as_json:
            console.emit_json({"run": str(run), "ranks": [{**asdict(rank), "any": rank.is_any} for rank in ranks]})
        else:
            header = ("rank", "node", "program's start", "state snapshot", "checkpoint")
            console.emit(console.columns(header, [_row(rank) for rank in ranks]))
            for line in _reasons(ranks):
                console.say(line)
    return ExitCode.OK if all(rank.is_any for rank in ranks) else ExitCode.LACKING


def _row(rank: Reach) -> tuple[str, ...]:
    checkpoint = "no" if rank.checkpoint else f"by node {rank.node}" if rank.checked_there else "yes"
    return rank.folder, rank.node or "-", "no" if rank.start else "yes", "no" if rank.state else "yes", checkpoint


def _reasons(ranks: Iterable[Reach]) -> Iterator[str]:
    """Each once, with the ranks that it holds for."""
    found: dict[tuple[str, str], list[str]] = {}
    for rank in ranks:
        for origin, why in (("start", rank.start), ("state snapshot", rank.state), ("checkpoint", rank.checkpoint)):
            if why:
                found.setdefault((origin, why), []).append(rank.folder)
    for (origin, why), folders in found.items():
        yield f"no {origin} of rank{'s' if len(folders) > 1 else ''} {', '.join(folders)}: {why}"
    if nodes := sorted({rank.node for rank in ranks if rank.checked_there and not rank.checkpoint}):
        yield f"run `prismdbg doctor` on {', '.join(nodes)} to see whether checkpoints work there"


def _origins(found: Iterable[Facility]) -> dict[str, bool]:
    """Which origins this machine can take and replay."""
    ok = {f.name.lower() for f in found if f.ok}
    return {"checkpoint": {choice.NAME, "kernel", "capabilities"} <= ok, "program's start": "torch" in ok}
