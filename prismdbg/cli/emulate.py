"""`prismdbg emulate`: any rank of a large job, alone on this machine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from prismdbg.cli import render
from prismdbg.cli.pace_options import end_unconverged, pace_options, pace_request
from prismdbg.cli.param_types import ranks as rank_list
from prismdbg.cli.param_types import seconds, size
from prismdbg.model.counted import counted
from prismdbg.predict.class_finder import DEFAULT_CHECKS, RankClasses
from prismdbg.predict.mesh import LARGEST_WORLD, Mesh
from prismdbg.predict.usual import SLIGHTLY
from prismdbg.rank.emulation.settings import ClockKind, Rule
from prismdbg.workflows.classes_file import FILE_NAME
from prismdbg.workflows.emulate import emulate
from prismdbg.workflows.emulate_request import USUAL_STEPS, EmulateRequest
from prismdbg.workflows.emulation_worth import worth_of
from prismdbg.workflows.launch_line import parse
from prismdbg.workflows.pacing import pace
from prismdbg.workflows.run_folder import RunFolder

MOST_ROWS = 40


@click.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.option("-o", "--output", type=click.Path(path_type=Path), required=True, metavar="RUN", help="New folder.")
@click.option(
    "--world", type=click.IntRange(1, LARGEST_WORLD), metavar="N", help="Ranks.  [default: torchrun's, else the mesh's]"
)
@click.option("--mesh", required=True, metavar="AXES", help="pp=16,dp=64,tp=8: the last axis has adjacent ranks.")
@click.option("--ranks", type=rank_list, help="Run these, one after another.  [default: 0]")
@click.option(
    "--classes",
    is_flag=False,
    flag_value="",
    metavar="[AXES]",
    help="One of each class of ranks; AXES: along which they differ, where that is known.",
)
@click.option(
    "--checks",
    type=click.IntRange(min=0),
    default=DEFAULT_CHECKS,
    show_default=True,
    help="With --classes: second members that run, at most.",
)
@click.option(
    "--steps",
    type=click.IntRange(min=0),
    default=0,
    help="End each after this many.  [default: to its end; with --classes 5]",
)
@click.option(
    "--peers",
    "rules",
    multiple=True,
    metavar="RULE",
    help="[AXIS][:COLLECTIVE]=POLICY; auto, echo, zeros, noise, donor, balanced. The last that holds decides.",
)
@click.option("--donor", type=click.Path(path_type=Path), metavar="RUN", help="An earlier run, --window all.")
@click.option("--donor-bytes", type=size, default="1GiB", show_default=True, help="Kept of what each rank sends.")
@click.option("--window-bytes", type=size, default="4GiB", show_default=True, help="Kept of others' values, to debug.")
@click.option("--seed", type=int, default=0, show_default=True, help="Of the noise.")
@click.option("--memory", is_flag=True, help="Trace operators, allocations and frees from the start, too.")
@click.option("--memory-cap", type=size, default="0", metavar="SIZE", help="Of a rank's own blocks.  [default: none]")
@click.option("--ranks-per-node", type=click.IntRange(min=0), default=0, help="[default: torchrun's, else 8]")
@click.option("--timeout", type=seconds, default="1h", show_default=True, help="For each run of a rank.")
@pace_options
@click.argument("job", nargs=-1, required=True, type=click.UNPROCESSED, metavar="-- COMMAND...")
def command(
    output: Path,
    world: int | None,
    mesh: str,
    ranks: tuple[int, ...] | None,
    classes: str | None,
    checks: int,
    steps: int,
    rules: tuple[str, ...],
    donor: Path | None,
    donor_bytes: int,
    window_bytes: int,
    seed: int,
    memory: bool,
    memory_cap: int,
    ranks_per_node: int,
    timeout: float,
    job: tuple[str, ...],
    **paced: Any,
) -> None:
    """Run chosen ranks of COMMAND as if N ranks were there: `prismdbg emulate -o RUN --world 8192 --mesh
    pp=16,dp=64,tp=8 --ranks 0,37 --steps 5 -- python train.py`.

    The script stays as it is. Its peers are synthesized: what they send is assumed and marked so in RUN. Where only
    another rank knows a value (an object, a stage's metadata), that rank is run first.
    """
    whole = Mesh.parse(mesh)
    request = EmulateRequest(
        output=output,
        command=job,
        world=world or parse(job).world or whole.world,
        mesh=whole,
        ranks=ranks or (0,),
        classes=class_axes(classes, ranks),
        checks=checks,
        steps=steps or (USUAL_STEPS if classes is not None else 0),
        rules=tuple(Rule.parse(rule) for rule in rules),
        seed=seed,
        memory=memory or memory_cap > 0,
        memory_cap=memory_cap,
        per_node=ranks_per_node,
        donor=donor,
        donor_bytes=donor_bytes,
        window_bytes=window_bytes,
        bound_s=timeout,
    )

    def say(text: str) -> None:
        render.say(f"prismdbg: {text}")

    to_pace = pace_request(request, **paced)
    paces = pace(to_pace, say) if to_pace is not None else None
    done = paces.emulated if paces is not None else emulate(request, say)
    on_virtual_clock = to_pace is not None and to_pace.clock is ClockKind.VIRTUAL
    for each in done.runs:
        kind = "" if each.rank in request.ranks or each.is_whole else " (for its values)"
        is_told = each.displaced > SLIGHTLY and not on_virtual_clock  # there it has no say in how long anything takes
        busy = f", {each.displaced:.0%} of each step in line for a processor" if is_told else ""
        render.say(f"prismdbg: rank {each.rank}: {each.wall_s:.1f} s{kind}{busy}")
    if done.classes is not None:
        render.emit("\n".join(class_lines(done.classes)))
    render.emit("\n".join(worth_of(RunFolder.existing(output), request.world).lines()))
    if paces is not None and not paces.has_converged:
        end_unconverged(paces)


def class_axes(text: str | None, ranks: tuple[int, ...] | None) -> tuple[str, ...] | None:
    """None where ranks are run by number."""
    if text is None:
        return None
    if ranks is not None:
        raise click.UsageError("--ranks and --classes: give one of them")
    return tuple(name.strip() for name in text.split(",") if name.strip())


def class_lines(found: RankClasses) -> list[str]:
    mesh = found.kinds.mesh
    rows = [
        (
            mesh.say(each.representative),
            f"{each.ranks:,}",
            ", ".join(map(str, each.checked_with)) or ("nobody: assumed" if each.is_assumed else "all ran"),
        )
        for each in found.classes
    ]
    table = render.columns(("class of", "ranks", "checked with"), rows[:MOST_ROWS], right=("ranks",)).splitlines()
    if len(rows) > MOST_ROWS:
        table.append(f"... {len(rows) - MOST_ROWS} more in {FILE_NAME}")
    alike = ", ".join(found.kinds.alike)
    rest = f"ranks that differ along {alike} only are taken to do the same" if alike else "every kind of rank ran"
    return [*table, f"{len(found.ran)} of {counted(mesh.world, 'rank')} ran; {rest}"]
