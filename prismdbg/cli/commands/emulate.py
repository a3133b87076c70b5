"""`prismdbg emulate`: any rank of a large job, alone on this machine."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from prismdbg.cli.options.addresses import Fetched
from prismdbg.cli.options.emulated_job import emulated_job
from prismdbg.cli.options.launched_job import JOB, NEW_RUN, TAKES_JOB
from prismdbg.cli.options.memory_options import MEMORY, MEMORY_CAP
from prismdbg.cli.options.pace_options import end_unconverged, pace_options, pace_request
from prismdbg.cli.options.param_types import seconds, size
from prismdbg.cli.options.user_code import USER_CODE
from prismdbg.cli.terminal import long_work
from prismdbg.emulate.assessment import worth_of
from prismdbg.emulate.emulate import Emulated, emulate
from prismdbg.emulate.pacing import pace
from prismdbg.emulate.request import EmulateRequest
from prismdbg.jobs.storage.classes_file import FILE_NAME
from prismdbg.jobs.storage.run_folder import RunFolder
from prismdbg.model.plurals import counted
from prismdbg.render import console
from prismdbg.settings.emulation import ClockKind
from prismdbg.simulate.graph.class_finder import RankClasses
from prismdbg.simulate.graph.typical_iteration import SLIGHTLY

MOST_ROWS = 40


@click.command(context_settings=TAKES_JOB)
@NEW_RUN
@emulated_job(
    ranks_help="Run these ranks one after another, as in 0,2 or 0-3.  [default: 0]",
    steps_help="End each rank after N steps.  [default: the end of the program; 5 with --classes]",
    peers_help="Set the values that peers send: [AXIS][:COLLECTIVE]=POLICY, with policy auto, echo, zeros, noise, "
    "donor or balanced (docs/emulation.md explains them). The last matching rule wins.  [default: auto]",
)
@click.option(
    "--together",
    metavar="AXES",
    default="",
    help="Run all ranks along AXES at once with each of --ranks, as real processes that communicate over gloo, as in "
    "tp or pp,tp. All other axes stay virtual.",
)
@click.option(
    "--donor",
    type=Fetched(),
    metavar="RUN",
    help="Let peers send values of this earlier run, emulated or recorded with --window all.",
)
@click.option(
    "--donor-bytes",
    type=size,
    default="1GiB",
    show_default=True,
    help="Keep at most SIZE of the data that each rank sends, for other ranks.",
)
@click.option(
    "--window-bytes",
    type=size,
    default="4GiB",
    show_default=True,
    help="Keep at most SIZE of the data that each rank receives, for the debugger.",
)
@click.option("--seed", type=int, default=0, show_default=True, metavar="N", help="Seed the noise that peers send.")
@MEMORY
@MEMORY_CAP
@click.option("--timeout", type=seconds, default="1h", show_default=True, help="Limit the time of each run of a rank.")
@pace_options
@USER_CODE
@JOB
def command(
    whole: EmulateRequest,
    output: Path,
    together: str,
    donor: Path | None,
    donor_bytes: int,
    window_bytes: int,
    seed: int,
    memory: bool,
    memory_cap: int,
    **paced: Any,
) -> None:
    """Run chosen ranks of COMMAND as part of a job of N ranks.

    Example: `prismdbg emulate -o RUN --world 8192 --mesh pp=16,dp=64,tp=8 --ranks 0,37 --steps 5 -- python train.py`

    The script needs no change. Its peers are virtual: their answers are synthesized, and RUN marks them. If only
    another rank knows a value (an object, the metadata of a pipeline stage), that rank runs first. The script writes
    its files as usual: give it another output folder, so that it does not overwrite the training checkpoints of the
    real job. What rank 37 prints is in RUN/output/37.txt.

    At the end, the calls of the ranks that ran are compared. If a real job would hang there, or --mesh
    is not the mesh of the program, the exit code is 2. It is 1 if --pace does not converge.
    """
    request = replace(
        whole,
        output=output,
        together=tuple(name.strip() for name in together.split(",") if name.strip()),
        seed=seed,
        memory=memory or memory_cap > 0,
        memory_cap=memory_cap,
        donor=donor,
        donor_bytes=donor_bytes,
        window_bytes=window_bytes,
    )
    to_pace = pace_request(request, **paced)
    with nullcontext() if whole.verbose else long_work.shown(whole="the emulation"):
        paces = pace(to_pace, console.announce) if to_pace is not None else None
        done = paces.emulated if paces is not None else emulate(request, console.announce)
    worth = worth_of(RunFolder.existing(output), request.world)
    with console.also_unread():
        _say_runs(done, request.chosen, on_virtual_clock=to_pace is not None and to_pace.clock is ClockKind.VIRTUAL)
        if done.classes is not None:
            console.emit_lines(class_lines(done.classes))
        console.emit_lines(worth.lines())
        if done.fit.without_axis:
            console.announce(f"not checked whether the mesh is the program's: {done.fit.without_axis}")
        if done.fit.not_checked:
            console.announce(f"not checked whether these ranks fit together: {done.fit.not_checked}")
    if done.fit.problem is not None:
        raise done.fit.problem
    if worth.passed is not None and worth.passed.is_apart:
        end_unconverged(worth.passed, output)


def _say_runs(done: Emulated, asked: tuple[int, ...], *, on_virtual_clock: bool) -> None:
    """How long each rank took. On a virtual clock, waiting for a CPU has no say in how long anything takes."""
    for each in done.runs:
        kind = "" if each.rank in asked or each.is_whole else " (for its data)"
        is_told = each.displaced > SLIGHTLY and not on_virtual_clock
        busy = f", {each.displaced:.0%} of each step waiting for a CPU" if is_told else ""
        console.announce(f"rank {each.rank}: {each.wall_s:.1f} s{kind}{busy}")


def class_lines(found: RankClasses) -> list[str]:
    mesh = found.kinds.mesh
    rows = [
        (
            mesh.say(each.representative),
            f"{each.ranks:,}",
            ", ".join(map(str, each.checked_with)) or ("none: assumed" if each.is_assumed else "all ran"),
        )
        for each in found.classes
    ]
    table = console.columns(("class of", "ranks", "checked with"), rows[:MOST_ROWS], right=("ranks",)).splitlines()
    if len(rows) > MOST_ROWS:
        table.append(f"... {len(rows) - MOST_ROWS} more in {FILE_NAME}")
    alike = ", ".join(found.kinds.alike)
    rest = f"ranks that differ only along {alike} are assumed to do the same" if alike else "a rank of every class ran"
    return [*table, f"{len(found.ran)} of {counted(mesh.world, 'rank')} ran; {rest}"]
