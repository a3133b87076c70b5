"""`prismdbg sample`: times of a program's operators, each alone, for `prismdbg predict` and for regressors."""

from __future__ import annotations

from pathlib import Path

import click

from prismdbg.cli.options import output_file
from prismdbg.cli.options.launched_job import JOB, TAKES_JOB
from prismdbg.cli.options.param_types import seconds
from prismdbg.cli.terminal import long_work
from prismdbg.emulate.request import EmulateRequest
from prismdbg.emulate.sample import Sampled, sample
from prismdbg.jobs.record.launch_line import parse
from prismdbg.model.plurals import counted
from prismdbg.render import console
from prismdbg.simulate.graph.mesh import Mesh


@click.command(context_settings=TAKES_JOB)
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), required=True, metavar="OPS", help="Write to this new folder."
)
@click.option(
    "--mesh", default="dp=1", show_default=True, metavar="AXES", help="Set the mesh axes and sizes of the whole job."
)
@click.option("--rank", type=click.IntRange(0), default=0, show_default=True, metavar="N", help="Emulate this rank.")
@click.option("--budget", type=seconds, default="40s", show_default=True, help="Stop timing operators after this time.")
@click.option("--timeout", type=seconds, default="5m", show_default=True, help="Limit the time of the rank's run.")
@JOB
def command(output: Path, mesh: str, rank: int, budget: float, timeout: float, job: tuple[str, ...]) -> None:
    """Time each operator of COMMAND in isolation, with its own and with changed shapes.

    Example: `prismdbg sample -o OPS -- python train.py`

    One rank is emulated for two steps. The operators of the second step are recorded, forward and backward, with the
    shapes of their tensors. Communication is left out.

    Then each of them is timed in isolation: first with the shapes of the step, then with each of its sizes changed,
    until --budget is used up. The output states how many shapes were not timed, and why. OPS gets a CSV file for each
    operator.

    Run nothing else on the machine at the same time.
    """
    axes = Mesh.parse(mesh)
    request = EmulateRequest(
        output=output,
        command=job,
        world=parse(job).world or axes.world,
        mesh=axes,
        ranks=(rank,),
        bound_s=timeout,
    )
    with output_file.whole_folder(output) as folder:
        done = sample(request, folder, budget, console.announce, long_work.shown)
    console.emit_lines(_lines(output, done))


def _lines(output: Path, done: Sampled) -> list[str]:
    return [
        f"{output}: {counted(done.measured, 'time')} of {counted(done.operators, 'operator')}, "
        f"from {counted(done.called, 'distinct call')} of a step "
        f"(timed for {done.timed_s:.0f} s, the start of that process included, after {done.emulated_s:.0f} s to find "
        "them)",
        *(f"left out: {count:,} of {done.wanted:,} shapes: {reason}" for reason, count in done.left_out.items()),
    ]
