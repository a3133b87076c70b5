"""What `predict` says of a training step on this machine, at widths and batches that `sample` did not see."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from statistics import fmean, median

from prismdbg.emulate.request import EmulateRequest
from prismdbg.emulate.sample import Sampled, sample
from prismdbg.predict.fit.operator_times import OperatorTimes
from prismdbg.predict.job.modelled_job import modelled_job
from prismdbg.predict.model import model_file
from prismdbg.predict.model.training import Training
from prismdbg.predict.samples.sample_folder import read_folder
from prismdbg.simulate.cluster.cluster import ideal
from prismdbg.simulate.engine.simulate import simulate
from prismdbg.simulate.graph.mesh import Mesh
from tests.bench.jobs import PROGRAMS, environment, run
from tests.bench.settings import Settings
from tests.bench.table import Measured, Row

TITLE = "Predicted steps of this machine, against measured ones"
SAMPLED = (256, 8)  # width and batch
# None of these widths and batches, and no multiple by a factor of the grid, is in the sampled program.
UNSEEN = ((224, 7), (320, 5), (320, 10), (352, 14), (448, 5), (160, 10))
GOAL, BUDGET_S, BOUND_S = 8.0, 50.0, 300.0
DROPPED_STEPS = 3
MODEL = """
kind: gpt
layers: 4
hidden: {width}
heads: 8
vocabulary: 256
sequence: 64
dropout: false
tied: false
"""


def measure(settings: Settings, folder: Path) -> Measured:
    os.environ.update(environment())  # what the sampled rank is started with
    done = _sampled(folder / "ops")
    times = OperatorTimes(read_folder(folder / "ops"))
    predicted = {shape: _predicted_ms(times, *shape) for shape in (SAMPLED, *UNSEEN)}
    real: dict[tuple[int, int], list[float]] = {shape: [] for shape in predicted}
    for _ in range(settings.here_rounds):
        for shape, taken in real.items():
            taken.append(_real_ms(*shape, settings.here_steps, folder))
    errors = {shape: 100 * (predicted[shape] / median(real[shape]) - 1) for shape in predicted}
    return _measured(done, predicted, real, errors)


def _sampled(ops: Path) -> Sampled:
    ops.mkdir()
    request = EmulateRequest(
        output=ops,
        command=(sys.executable, str(PROGRAMS / "gpt_alone.py"), *map(str, SAMPLED), "3"),
        world=1,
        mesh=Mesh.parse("dp=1"),
        ranks=(0,),
        bound_s=BOUND_S,
    )
    return sample(request, ops, BUDGET_S, lambda _: None)


def _predicted_ms(times: OperatorTimes, width: int, batch: int) -> float:
    training = Training(mesh=Mesh.parse("dp=1"), batch=batch, microbatch=batch)
    job = modelled_job(model_file.parse(MODEL.format(width=width)), training, times)
    return simulate(job.graph, ideal()).iteration_ns / 1e6


def _real_ms(width: int, batch: int, steps: int, folder: Path) -> float:
    out = folder / "steps.json"
    words = [str(PROGRAMS / "gpt_alone.py"), *map(str, (width, batch, steps)), str(out)]
    run([sys.executable, *words], folder / "real.txt")
    return median(json.loads(out.read_text())[DROPPED_STEPS:]) * 1e3


def _measured(
    done: Sampled,
    predicted: dict[tuple[int, int], float],
    real: dict[tuple[int, int], list[float]],
    errors: dict[tuple[int, int], float],
) -> Measured:
    unseen = [errors[shape] for shape in UNSEEN]
    noise = [100 * (max(taken) / min(taken) - 1) for taken in real.values()]
    return Measured(
        rows=[
            Row(what="unseen sizes: mean error", values=[fmean(map(abs, unseen))], unit="%", digits=2, goal=GOAL),
            Row(what="unseen sizes: largest error", values=[max(map(abs, unseen))], unit="%", digits=2),
            Row(what="real against real: largest less smallest of the rounds", values=noise, unit="%", digits=2),
        ],
        notes=[
            f"Sampled once, at width {SAMPLED[0]} and batch {SAMPLED[1]}: {done.measured} times of {done.operators} "
            f"operators, budget {BUDGET_S:g} s. The steps are those of the example GPT (4 layers, 64 tokens, float32, "
            "AdamW) in one thread, in processor time, so that other programs' time does not count.",
            *(
                f"width {width}, batch {batch}{' (sampled)' if (width, batch) == SAMPLED else ''}: "
                f"measured {median(real[width, batch]):.1f} ms, predicted {predicted[width, batch]:.1f} ms, "
                f"{errors[width, batch]:+.1f} %"
                for width, batch in predicted
            ),
            f"signed mean of the unseen: {fmean(unseen):+.2f} %",
        ],
    )  # fmt: skip
