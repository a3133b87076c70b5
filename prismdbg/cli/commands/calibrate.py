"""`prismdbg calibrate`: a cluster file from collectives measured on this machine, or on several."""

from __future__ import annotations

from pathlib import Path

import click

from prismdbg.cli.options import output_file
from prismdbg.cli.options.param_types import ranks as rank_list
from prismdbg.cli.options.param_types import seconds, size
from prismdbg.errors import UsageError
from prismdbg.jobs.record import calibrate as workflow
from prismdbg.jobs.record.calibrate import CalibrateRequest, calibrate
from prismdbg.render import calibration_text, console


def sizes_list(text: str) -> tuple[int, ...]:
    found = tuple(size(part) for part in str(text).split(",") if part.strip())
    if not found:
        raise click.BadParameter(f"{text!r} names no size: write 1KiB,64KiB,4MiB, or leave the option out")
    return found


@click.command()
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), required=True, metavar="FILE", help="New cluster file."
)
@click.option("--ranks", "groups", type=rank_list, default="2,4", show_default=True, help="Groups of so many ranks.")
@click.option(
    "--sizes", type=sizes_list, metavar="SIZES", help="Of messages, as in 1KiB,64KiB,4MiB.  [default: 256B-64MiB]"
)
@click.option(
    "--backend", type=click.Choice(workflow.BACKENDS), default="gloo", show_default=True, help="Of torch.distributed."
)
@click.option("--quick", is_flag=True, help="Fewer sizes and rounds: a rough model in seconds.")
@click.option("--time", "bound_s", type=seconds, help="End measuring after this.  [default: 1m; 10s with --quick]")
@click.option("--pin", is_flag=True, help="A processor for each rank.")
@click.option("--nodes", type=click.IntRange(min=1), default=1, show_default=True, help="So many nodes take part.")
@click.option("--node-rank", type=click.IntRange(min=0), default=0, show_default=True, help="Which of them this is.")
@click.option("--head", default="", metavar="HOST:PORT", help="Where the nodes meet, on node 0.")
@click.option("--json", "as_json", is_flag=True, help="Print every measured time and the model's as JSON.")
def command(
    output: Path,
    groups: tuple[int, ...],
    sizes: tuple[int, ...] | None,
    backend: str,
    quick: bool,
    bound_s: float | None,
    pin: bool,
    nodes: int,
    node_rank: int,
    head: str,
    as_json: bool,
) -> None:
    """Measure collectives in a job of torchrun's own and write a cluster model that fits them, for `graph --cluster`.

    With several nodes, start it on each with the same options and its --node-rank; node 0 writes FILE. The machine
    should have nothing else to do.
    """
    if output.exists():
        raise UsageError(f"{output} exists", hint="give a new file; a calibration is never overwritten")
    if not output.absolute().parent.is_dir():
        raise UsageError(f"{output.parent} is no folder", hint="give a file in a folder that exists")
    output_file.require(output)
    request = CalibrateRequest(
        backend=backend,
        groups=groups,
        sizes=sizes or (workflow.QUICK_SIZES if quick else workflow.SIZES),
        rounds=workflow.QUICK_ROUNDS if quick else workflow.ROUNDS,
        bound_s=bound_s or (workflow.QUICK_BOUND_S if quick else workflow.BOUND_S),
        pin=pin,
        nodes=nodes,
        node_rank=node_rank,
        head=head,
    )
    measured = calibrate(request, lambda text: console.say(f"prismdbg: {text}"))
    if measured is None:
        console.say("prismdbg: node 0 writes the cluster file")
        return
    with output_file.whole(output) as path:
        path.write_text(measured.text(), encoding="utf-8")
    if as_json:
        console.emit_json(calibration_text.values(measured))
    else:
        console.emit("\n".join(calibration_text.lines(measured)))
    console.say(f"prismdbg: {output}: for `prismdbg graph simulate --cluster {output}`")
