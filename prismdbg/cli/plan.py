"""`prismdbg plan`: what an emulation will take, said before it is begun."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import click

from prismdbg.cli import render
from prismdbg.cli.emulate import class_axes
from prismdbg.cli.param_types import ranks as rank_list
from prismdbg.cli.param_types import seconds
from prismdbg.predict import cluster_file
from prismdbg.predict.class_finder import DEFAULT_CHECKS
from prismdbg.predict.mesh import LARGEST_WORLD, Mesh
from prismdbg.predict.sandbox_plan import Figure, Sandbox
from prismdbg.rank.emulation.settings import Rule
from prismdbg.workflows.emulate_request import USUAL_STEPS, EmulateRequest
from prismdbg.workflows.launch_line import parse
from prismdbg.workflows.plan import plan

MOST_NAMED = 12


@click.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.option(
    "--world", type=click.IntRange(1, LARGEST_WORLD), metavar="N", help="Ranks.  [default: torchrun's, else the mesh's]"
)
@click.option("--mesh", required=True, metavar="AXES", help="pp=16,dp=64,tp=8: the last axis has adjacent ranks.")
@click.option("--ranks", type=rank_list, help="These would run.  [default: 0]")
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
@click.option("--steps", type=click.IntRange(min=0), default=0, help="As in emulate.  [default: to the program's end]")
@click.option("--cluster", type=click.Path(path_type=Path), help="Read it, too, so that a mistake in it is found now.")
@click.option("--peers", "rules", multiple=True, metavar="RULE", help="As in emulate, for the rank that is tried.")
@click.option("--ranks-per-node", type=click.IntRange(min=0), default=0, help="[default: torchrun's, else 8]")
@click.option("--probe/--no-probe", default=True, show_default=True, help="Run one rank for two steps to measure it.")
@click.option("--timeout", type=seconds, default="10m", show_default=True, help="For that rank.")
@click.option("--json", "as_json", is_flag=True, help="Print the values as JSON.")
@click.argument("job", nargs=-1, required=True, type=click.UNPROCESSED, metavar="-- COMMAND...")
def command(
    world: int | None,
    mesh: str,
    ranks: tuple[int, ...] | None,
    classes: str | None,
    checks: int,
    steps: int,
    cluster: Path | None,
    rules: tuple[str, ...],
    ranks_per_node: int,
    probe: bool,
    timeout: float,
    as_json: bool,
    job: tuple[str, ...],
) -> None:
    """Say how many ranks `prismdbg emulate` would run here, how long that takes, and how much storage and memory.

    One rank is tried for two steps in a folder that goes away, unless --no-probe. Each figure says how it is known.
    """
    if cluster is not None:
        cluster_file.read(cluster)
    whole = Mesh.parse(mesh)
    request = EmulateRequest(
        output=Path("not-made"),
        command=job,
        world=world or parse(job).world or whole.world,
        mesh=whole,
        ranks=ranks or (0,),
        classes=class_axes(classes, ranks),
        checks=checks,
        steps=steps or (USUAL_STEPS if classes is not None else 0),
        rules=tuple(Rule.parse(rule) for rule in rules),
        per_node=ranks_per_node,
        bound_s=timeout,
    )
    sandbox, figures = plan(request, lambda text: render.say(f"prismdbg: {text}"), probe=probe)
    if as_json:
        render.emit_json({"ranks": list(sandbox.ranks), "figures": [asdict(figure) for figure in figures]})
        return
    rows = [(figure.what, _value(figure), str(figure.known), figure.why) for figure in figures]
    render.emit(render.columns(("what", "how much", "known", "from"), rows, right=("how much",)))
    render.emit(_named(request.mesh, sandbox))


def _named(mesh: Mesh, sandbox: Sandbox) -> str:
    shown = [mesh.say(rank) for rank in sandbox.ranks[:MOST_NAMED]]
    more = sandbox.count - len(shown)
    return f"these run: {', '.join(shown)}" + (f", then {more:,} more" if more > 0 else "")


def _value(figure: Figure) -> str:
    if figure.value is None:
        return "?"
    if figure.unit == "B":
        return render.size(round(figure.value))
    if figure.unit == "s":
        return _time(figure.value)
    return f"{round(figure.value):,}"


def _time(seconds_: float) -> str:
    if seconds_ < 120:
        return f"{seconds_:.2g} s" if seconds_ < 10 else f"{seconds_:.0f} s"
    return f"{seconds_ / 60:.0f} min" if seconds_ < 7200 else f"{seconds_ / 3600:.1f} h"
