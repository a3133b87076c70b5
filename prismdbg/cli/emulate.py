"""`prismdbg emulate`: any rank of a large job, alone on this machine."""

from __future__ import annotations

from pathlib import Path

import click

from prismdbg.cli import render
from prismdbg.cli.param_types import ranks as rank_list
from prismdbg.cli.param_types import seconds, size
from prismdbg.predict.mesh import Mesh
from prismdbg.rank.emulation.settings import Rule
from prismdbg.workflows.emulate import emulate
from prismdbg.workflows.emulate_request import EmulateRequest


@click.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.option("-o", "--output", type=click.Path(path_type=Path), required=True, metavar="RUN", help="New folder.")
@click.option("--world", type=click.IntRange(min=1), required=True, metavar="N", help="Ranks of the whole job.")
@click.option("--mesh", required=True, metavar="AXES", help="pp=16,dp=64,tp=8: the last axis has adjacent ranks.")
@click.option("--ranks", type=rank_list, default="0", show_default=True, help="Run these, one after another.")
@click.option("--steps", type=click.IntRange(min=0), default=0, help="End each after this many.  [default: to its end]")
@click.option(
    "--peers",
    "rules",
    multiple=True,
    metavar="RULE",
    help="[AXIS][:COLLECTIVE]=POLICY; auto, echo, zeros, noise, donor, balanced. The last that holds decides.",
)
@click.option("--donor", type=click.Path(path_type=Path), metavar="RUN", help="An earlier run with values of peers.")
@click.option("--donor-bytes", type=size, default="1GiB", show_default=True, help="Kept of what each rank sends.")
@click.option("--window-bytes", type=size, default="4GiB", show_default=True, help="Kept of others' values, to debug.")
@click.option("--seed", type=int, default=0, show_default=True, help="Of the noise.")
@click.option("--memory", is_flag=True, help="Trace operators, allocations and frees from the start, too.")
@click.option("--ranks-per-node", type=click.IntRange(min=0), default=0, help="[default: torchrun's, else 8]")
@click.option("--timeout", type=seconds, default="1h", show_default=True, help="For each run of a rank.")
@click.argument("job", nargs=-1, required=True, type=click.UNPROCESSED, metavar="-- COMMAND...")
def command(
    output: Path,
    world: int,
    mesh: str,
    ranks: tuple[int, ...],
    steps: int,
    rules: tuple[str, ...],
    donor: Path | None,
    donor_bytes: int,
    window_bytes: int,
    seed: int,
    memory: bool,
    ranks_per_node: int,
    timeout: float,
    job: tuple[str, ...],
) -> None:
    """Run chosen ranks of COMMAND as if N ranks were there: `prismdbg emulate -o RUN --world 8192 --mesh
    pp=16,dp=64,tp=8 --ranks 0,37 --steps 5 -- python train.py`.

    The script stays as it is. Its peers are synthesized: what they send is assumed and marked so in RUN. Where only
    another rank knows a value (an object, a stage's metadata), that rank is run first.
    """
    request = EmulateRequest(
        output=output,
        command=job,
        world=world,
        mesh=Mesh.parse(mesh),
        ranks=ranks or (0,),
        steps=steps,
        rules=tuple(Rule.parse(rule) for rule in rules),
        seed=seed,
        memory=memory,
        per_node=ranks_per_node,
        donor=donor,
        donor_bytes=donor_bytes,
        window_bytes=window_bytes,
        bound_s=timeout,
    )
    results = emulate(request, lambda text: render.say(f"prismdbg: {text}"))
    for result in results:
        kind = "" if result.rank in request.ranks else " (for its values)"
        render.say(f"prismdbg: rank {result.rank}: {result.wall_s:.1f} s{kind}")
