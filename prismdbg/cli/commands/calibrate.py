"""`prismdbg calibrate`: a cluster file from collectives measured on this machine, or on several."""

from __future__ import annotations

from pathlib import Path

import click

from prismdbg.cli.click_errors import WrongValue
from prismdbg.cli.options import output_file
from prismdbg.cli.options.param_types import ranks as rank_list
from prismdbg.cli.options.param_types import seconds, size
from prismdbg.cli.terminal import long_work
from prismdbg.errors import UsageError
from prismdbg.jobs.record import calibrate as workflow
from prismdbg.jobs.record.calibrate import CalibrateRequest, calibrate
from prismdbg.render import calibration_text, console


def sizes_list(text: str) -> tuple[int, ...]:
    found = tuple(size(part) for part in str(text).split(",") if part.strip())
    if not found:
        raise WrongValue(f"{text!r} is not a list of sizes", hint="write 1KiB,64KiB,4MiB, or leave the option out")
    return found


@click.command()
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), required=True, metavar="FILE", help="Write to this new file."
)
@click.option(
    "--ranks",
    "groups",
    type=rank_list,
    default="2,4",
    show_default=True,
    metavar="RANKS",
    help="Measure groups with these numbers of ranks.",
)
@click.option(
    "--sizes",
    type=sizes_list,
    metavar="SIZES",
    help="Measure these message sizes, as in 1KiB,64KiB,4MiB.  [default: 256B-64MiB; 1KiB-4MiB with --quick]",
)
@click.option(
    "--backend",
    type=click.Choice(workflow.BACKENDS),
    default="gloo",
    show_default=True,
    help="Measure this torch.distributed backend.",
)
@click.option("--quick", is_flag=True, help="Measure fewer sizes and rounds for a rough model in seconds.")
@click.option(
    "--time", "bound_s", type=seconds, help="Stop measuring after this time.  [default: 1m; 10s with --quick]"
)
@click.option("--pin", is_flag=True, help="Pin each rank to a CPU.")
@click.option(
    "--without",
    type=click.Choice(workflow.MEASURES),
    multiple=True,
    help="Skip a measurement of contention: computation that overlaps communication (overlap), groups that share the "
    "links of a node (links), ranks that share its CPUs (processors). Repeat it for several.",
)
@click.option(
    "--nodes", type=click.IntRange(min=1), default=1, show_default=True, metavar="N", help="Measure across N nodes."
)
@click.option(
    "--node-rank",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    metavar="N",
    help="Set the number of this node, from 0.",
)
@click.option(
    "--head",
    default="",
    metavar="HOST:PORT",
    help="Use this address of node 0 as the rendezvous of all nodes; required for several nodes.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the measured and the modelled times as JSON.")
def command(
    output: Path,
    groups: tuple[int, ...],
    sizes: tuple[int, ...] | None,
    backend: str,
    quick: bool,
    bound_s: float | None,
    pin: bool,
    without: tuple[str, ...],
    nodes: int,
    node_rank: int,
    head: str,
    as_json: bool,
) -> None:
    """Measure collectives and write a cluster file for `graph simulate --cluster`.

    Example: `prismdbg calibrate -o cluster.yaml`

    It also measures the slowdown when computation overlaps communication, when several groups of a node communicate at
    the same time, and when more ranks than CPUs compute at the same time.

    It starts its own torchrun job. For several nodes, start it on each node with the same options and the node's
    own --node-rank; node 0 writes FILE. Run nothing else on the machine meanwhile.
    """
    _require_new(output)
    request = CalibrateRequest(
        backend=backend,
        groups=groups,
        sizes=sizes or (workflow.QUICK_SIZES if quick else workflow.SIZES),
        rounds=workflow.QUICK_ROUNDS if quick else workflow.ROUNDS,
        bound_s=bound_s or (workflow.QUICK_BOUND_S if quick else workflow.BOUND_S),
        pin=pin,
        without=without,
        nodes=nodes,
        node_rank=node_rank,
        head=head,
    )
    with long_work.shown():
        measured = calibrate(request, console.announce)
    if measured is None:
        console.announce("node 0 writes the cluster file")
        return
    with output_file.whole(output) as path:
        path.write_text(measured.text(), encoding="utf-8")
    if as_json:
        console.emit_json(calibration_text.values(measured))
    else:
        console.emit("\n".join(calibration_text.lines(measured)))
    console.announce(f"wrote {output}; next: prismdbg graph simulate GRAPH --cluster {output}")


def _require_new(output: Path) -> None:
    """Before anything is measured."""
    if output.exists():
        raise UsageError(f"{output} already exists", hint="choose a new file: a cluster file is never overwritten")
    if not output.absolute().parent.is_dir():
        raise UsageError(f"no such folder: {output.parent}", hint="create it, or choose a file in another folder")
    output_file.require(output)
