"""`prismdbg predict`: time and memory of a training step, from times of single operators. Nothing runs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from prismdbg.cli.options import output_file
from prismdbg.cli.terminal import long_work
from prismdbg.errors import UsageError
from prismdbg.predict.fit.operator_times import OperatorTimes
from prismdbg.predict.job.modelled_job import modelled_job
from prismdbg.predict.model import model_file
from prismdbg.predict.model.training import Recompute, Training
from prismdbg.predict.samples.collective_files import not_used
from prismdbg.predict.samples.sample_folder import read_folder
from prismdbg.render import console, prediction_text
from prismdbg.simulate.cluster import cluster_file
from prismdbg.simulate.engine.simulate import simulate
from prismdbg.simulate.graph import graph_file
from prismdbg.simulate.graph.mesh import Mesh


@click.command()
@click.argument("model", type=click.Path(path_type=Path), metavar="MODEL")
@click.option(
    "--ops",
    required=True,
    type=click.Path(path_type=Path),
    metavar="OPS",
    help="Use the times of operators in this folder.",
)
@click.option(
    "--cluster",
    "cluster_path",
    required=True,
    type=click.Path(path_type=Path),
    metavar="YAML",
    help="Simulate this cluster.",
)
@click.option("--mesh", required=True, metavar="AXES", help="Set the sizes of pp, dp, ep and tp, as in pp=4,dp=2,tp=8.")
@click.option(
    "--batch",
    type=click.IntRange(1),
    required=True,
    metavar="N",
    help="Set the samples of an iteration, of all ranks together.",
)
@click.option(
    "--microbatch",
    type=click.IntRange(1),
    default=1,
    show_default=True,
    metavar="N",
    help="Set the samples of a microbatch.",
)
@click.option(
    "--recompute",
    type=click.Choice([each.value for each in Recompute]),
    default=Recompute.NONE.value,
    show_default=True,
    help="Recompute activations in the backward pass: the attention alone (selective), or all of each layer (full).",
)
@click.option(
    "--sequence-parallel",
    is_flag=True,
    help="Use Megatron's sequence parallelism: split activations along the sequence outside of the linear layers.",
)
@click.option(
    "--interleave",
    type=click.IntRange(1),
    default=1,
    show_default=True,
    metavar="N",
    help="Interleave N chunks of layers in each pipeline stage.",
)
@click.option(
    "--zero",
    type=click.IntRange(0, 3),
    default=0,
    show_default=True,
    metavar="STAGE",
    help="Set the ZeRO stage: 1 shards optimizer states across data-parallel ranks, 2 also gradients, 3 also "
    "weights, as FSDP does.",
)
@click.option(
    "--gradient-bytes",
    type=click.Choice(["2", "4"]),
    default="4",
    show_default=True,
    help="Set the size of a gradient, as it is kept and sent.",
)
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), metavar="FILE", help="Also write the job graph to FILE."
)
@click.option("--json", "as_json", is_flag=True, help="Print the values as JSON.")
@long_work.shown()
def command(model: Path, ops: Path, cluster_path: Path, output: Path | None, as_json: bool, **trained: Any) -> None:
    """Predict time and memory of a training step from times of single operators.

    Example: `prismdbg predict MODEL --ops OPS --cluster cluster.yaml --mesh pp=4,dp=2,tp=8 --batch 512`

    MODEL is a YAML file with the sizes of a GPT, a Llama or a mixture-of-experts model. OPS is a folder of CSV files,
    each with the times of one operator; times of collectives come from the cluster file, not from OPS. No program runs:
    prismdbg estimates operators whose shapes were not sampled, and lists those that are far from all samples. The
    schedule is 1F1B. docs/prediction.md describes the formats and how large the errors are.
    """
    described = model_file.read(model)
    training = _training(**trained)
    cluster = cluster_file.read(cluster_path)
    training.check(described)
    samples = read_folder(ops, console.say)
    if unused := not_used(ops, samples.values(), cluster_path, cluster):
        console.announce(unused)
    job = modelled_job(described, training, OperatorTimes(samples))
    timeline = simulate(job.graph, cluster)
    if output is not None:
        with output_file.whole(output) as path:
            graph_file.save(job.graph, path)
        console.say(f"{output}: {job.graph.in_short}; next: prismdbg graph simulate {output} --cluster {cluster_path}")
    if as_json:
        console.emit_json(prediction_text.values(described, training, job, timeline))
    else:
        console.emit_lines(prediction_text.lines(described, training, job, timeline))


def _training(*, mesh: str, recompute: str, sequence_parallel: bool, gradient_bytes: str, **numbers: int) -> Training:
    return Training(
        mesh=Mesh.parse(mesh),
        recompute=Recompute(recompute),
        is_sequence_parallel=sequence_parallel,
        gradient_bytes=int(gradient_bytes),
        **numbers,
    )


def read_words(words: Sequence[str], mesh: Mesh) -> tuple[Path, Training]:
    """The model's file and how it is trained on a mesh, of arguments of this command without OPS and YAML.
    `UsageError` where it would not take them."""
    line = [*words, "--mesh", str(mesh), "--ops", "-", "--cluster", "-"]
    try:
        given = dict(command.make_context("predict", line).params)
    except click.ClickException as error:
        raise UsageError(error.format_message(), hint="see `prismdbg predict --help`") from error
    model = given.pop("model")
    for name in ("ops", "cluster_path", "output", "as_json"):
        given.pop(name)
    return model, _training(**given)
