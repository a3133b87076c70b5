"""`prismdbg calibrate`: a cluster file from collectives measured on this machine, on several, or by somebody else."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

import click
from click.core import ParameterSource

from prismdbg.cli.click_errors import WrongValue
from prismdbg.cli.options import output_file
from prismdbg.cli.options.param_types import ranks as rank_list
from prismdbg.cli.options.param_types import seconds, size
from prismdbg.cli.terminal import long_work
from prismdbg.errors import UsageError
from prismdbg.jobs.record import calibrate as workflow
from prismdbg.jobs.record.calibrate import CalibrateRequest, calibrate
from prismdbg.predict.samples.collective_files import OPS, read_collectives
from prismdbg.render import calibration_text, collective_tables_text, console
from prismdbg.simulate.cluster import cluster_text
from prismdbg.simulate.cluster.checked_yaml import MAX_BYTES
from prismdbg.simulate.cluster.cluster import Calibration
from prismdbg.simulate.cluster.collective_tables import tabulated

_WITH_FROM = {"output", "sources", "as_json"}


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
    "--from",
    "sources",
    multiple=True,
    type=click.Path(path_type=Path),
    metavar="PATH",
    help="Measure nothing: make the cluster file from the times in this CSV file, or in those of this folder. Repeat "
    "the option for several.",
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
@click.pass_context
def command(
    context: click.Context,
    output: Path,
    sources: tuple[Path, ...],
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
    """Write a cluster file, from measured collectives or CSV files, for `graph simulate`, `predict` and `sweep`.

    Example: `prismdbg calibrate -o cluster.yaml`

    It also measures the slowdown when computation overlaps communication, when several groups of a node communicate at
    the same time, and when more ranks than CPUs compute at the same time.

    It starts its own torchrun job. For several nodes, start it on each node with the same options and the node's own
    --node-rank; node 0 writes FILE. Run nothing else on the machine at the same time.

    With --from, no job starts: FILE gets a table for each collective and layout in files such as allreduce_fp16.csv,
    with the columns shape, nodes, GPUsPerNode and dur(us). docs/prediction.md describes them.
    """
    _require_new(output)
    if sources:
        _require_alone(context)
        _from_files(sources, output, as_json)
        return
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


def _require_alone(context: click.Context) -> None:
    for option in context.command.params:
        given = option.name and context.get_parameter_source(option.name) is ParameterSource.COMMANDLINE
        if given and option.name not in _WITH_FROM:
            raise UsageError(
                f"{option.opts[0]} cannot be combined with --from, which measures nothing",
                hint="leave one of them out",
            )


@long_work.shown()
def _from_files(sources: Sequence[Path], output: Path, as_json: bool) -> None:
    times = read_collectives(sources)
    machine = times.gpu or "the machine of these files"
    about = Calibration(machine=machine, backend="files", date=time.strftime("%Y-%m-%d"), fits={})
    found = tabulated(times.samples, about)
    notes = [f"From {', '.join(map(str, sources))}", *found.notes]
    text = cluster_text.write(found.cluster, notes)
    if len(text) > MAX_BYTES:
        raise UsageError(f"{len(found.tables):,} layouts are too many for a cluster file", hint="give fewer files")
    with output_file.whole(output) as path:
        path.write_text(text, encoding="utf-8")
    if times.left_out:
        console.announce(f"not used, because they have no times of {', '.join(OPS)}: {', '.join(times.left_out)}")
    if as_json:
        console.emit_json(collective_tables_text.values(found))
    else:
        console.emit("\n".join(collective_tables_text.lines(found)))
    console.announce(f"wrote {output}; next: prismdbg predict ... --cluster {output}, or prismdbg graph simulate")


def _require_new(output: Path) -> None:
    """Before anything is measured."""
    if output.exists():
        raise UsageError(f"{output} already exists", hint="choose a new file: a cluster file is never overwritten")
    if not output.absolute().parent.is_dir():
        raise UsageError(f"no such folder: {output.parent}", hint="create it, or choose a file in another folder")
    output_file.require(output)
