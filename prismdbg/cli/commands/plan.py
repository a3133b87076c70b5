"""`prismdbg plan`: what an emulation will take, said before it is begun."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path

import click

from prismdbg.cli.options.emulated_job import emulated_job
from prismdbg.cli.options.launched_job import JOB, TAKES_JOB
from prismdbg.cli.options.param_types import seconds
from prismdbg.cli.terminal import long_work
from prismdbg.emulate.plan import plan
from prismdbg.emulate.request import EmulateRequest
from prismdbg.render import console
from prismdbg.simulate.cluster import cluster_file
from prismdbg.simulate.graph.mesh import Mesh
from prismdbg.simulate.report.sandbox_plan import Figure, Sandbox

MOST_NAMED = 12


@click.command(context_settings=TAKES_JOB)
@emulated_job(
    ranks_help="Plan for these ranks, as in 0,2 or 0-3.  [default: 0]",
    steps_help="Plan for N steps per rank.  [default: the whole program; 5 with --classes]",
    peers_help="Set the values that peers send in the trial run, as in `emulate`.",
)
@click.option(
    "--cluster", type=click.Path(path_type=Path), metavar="YAML", help="Check this cluster file for mistakes."
)
@click.option(
    "--probe/--no-probe",
    default=True,
    show_default=True,
    help="Run one rank, and the ranks whose data it needs, for two steps and measure them.",
)
@click.option("--timeout", type=seconds, default="10m", show_default=True, help="Limit the time of this trial run.")
@click.option("--json", "as_json", is_flag=True, help="Print the values as JSON.")
@JOB
def command(
    whole: EmulateRequest,
    cluster: Path | None,
    probe: bool,
    as_json: bool,
) -> None:
    """Estimate the ranks, time, storage and memory that `prismdbg emulate` needs on this machine.

    Example: `prismdbg plan --world 64 --mesh dp=8,tp=8 --classes -- python train.py`

    It first runs one rank, and the ranks whose data it needs, for two steps in a temporary folder; --no-probe skips
    this. Each figure shows its source.
    """
    if cluster is not None:
        cluster_file.read(cluster)
    with nullcontext() if whole.verbose else long_work.shown():
        sandbox, figures = plan(whole, console.announce, probe=probe)
    if as_json:
        console.emit_json({"ranks": list(sandbox.ranks), "figures": [asdict(figure) for figure in figures]})
        return
    rows = [(figure.what, _value(figure), str(figure.known), figure.why) for figure in figures]
    console.emit(console.columns(("what", "how much", "known", "from"), rows, right=("how much",)))
    console.emit_lines([_named(whole.mesh, sandbox)])


def _named(mesh: Mesh, sandbox: Sandbox) -> str:
    shown = [mesh.say(rank) for rank in sandbox.ranks[:MOST_NAMED]]
    more = sandbox.count - len(shown)
    return f"these run: {', '.join(shown)}" + (f", then {more:,} more" if more > 0 else "")


def _value(figure: Figure) -> str:
    if figure.value is None:
        return "?"
    if figure.unit == "B":
        return console.size(round(figure.value))
    if figure.unit == "s":
        return _time(figure.value)
    return f"{round(figure.value):,}"


def _time(seconds_: float) -> str:
    if seconds_ < 120:
        return f"{seconds_:.2g} s" if seconds_ < 10 else f"{seconds_:.0f} s"
    return f"{seconds_ / 60:.0f} min" if seconds_ < 7200 else f"{seconds_ / 3600:.1f} h"
