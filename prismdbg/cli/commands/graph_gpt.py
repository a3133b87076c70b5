"""`prismdbg graph gpt`: the graph of a GPT from arithmetic alone, to plan a job before there is one."""

from __future__ import annotations

from pathlib import Path

import click
import numpy as np

from prismdbg.cli.options import output_file
from prismdbg.cli.terminal import long_work
from prismdbg.render import console
from prismdbg.simulate.graph import graph_file
from prismdbg.simulate.graph.gpt_job import GptShape, gpt_job
from prismdbg.simulate.graph.mesh import Mesh
from prismdbg.simulate.quantities import MILLION

_TERA = 10**12


@click.command("gpt")
@click.option(
    "-o", "--output", required=True, type=click.Path(path_type=Path), metavar="FILE", help="Write the graph to FILE."
)
@click.option(
    "--mesh", "mesh_text", required=True, metavar="AXES", help="Set the sizes of pp, dp and tp, as in pp=16,dp=64,tp=8."
)
@click.option(
    "--layers", type=click.IntRange(1), required=True, metavar="N", help="Set the number of layers, a multiple of pp."
)
@click.option("--hidden", type=click.IntRange(1), required=True, metavar="N", help="Set the hidden size.")
@click.option(
    "--sequence",
    type=click.IntRange(1),
    default=4096,
    show_default=True,
    metavar="N",
    help="Set the tokens per sample.",
)
@click.option(
    "--vocabulary",
    type=click.IntRange(1),
    default=128_000,
    show_default=True,
    metavar="N",
    help="Set the vocabulary size.",
)
@click.option(
    "--microbatches",
    type=click.IntRange(1),
    default=32,
    show_default=True,
    metavar="N",
    help="Set the microbatches per step.",
)
@click.option(
    "--tflops",
    type=click.IntRange(1),
    default=400,
    show_default=True,
    metavar="N",
    help="Set the speed of a rank in TFLOP/s.",
)
@click.option(
    "--spread",
    type=click.IntRange(0, 100),
    default=0,
    show_default=True,
    metavar="N",
    help="Slow each rank by a random 0 to N %.",
)
@long_work.shown()
def command(
    output: Path,
    mesh_text: str,
    layers: int,
    hidden: int,
    sequence: int,
    vocabulary: int,
    microbatches: int,
    tflops: int,
    spread: int,
) -> None:
    """Calculate the graph of a GPT's training step.

    Example: `prismdbg graph gpt -o gpt.npz --mesh pp=16,dp=64,tp=8 --layers 32 --hidden 4096`

    The schedule is 1F1B with sequence parallelism. Nothing runs; every duration is assumed.
    """
    mesh = Mesh.parse(mesh_text)
    shape = GptShape(
        layers=layers,
        hidden=hidden,
        sequence=sequence,
        vocabulary=vocabulary,
        microbatches=microbatches,
        flops=tflops * _TERA,
    )
    slowest = MILLION + spread * MILLION // 100
    speeds = np.random.default_rng(0).integers(MILLION, slowest + 1, mesh.world) if spread else None
    graph = gpt_job(mesh, shape, compute_ppm=speeds)
    with output_file.whole(output) as path:
        graph_file.save(graph, path)
    console.say(f"{output}: {graph.in_short}, {console.size(output.stat().st_size)}")
