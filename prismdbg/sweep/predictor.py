"""Configurations that do not run: each is a prediction from times of single operators."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from prismdbg.predict.fit.operator_times import Doubts, OperatorTimes
from prismdbg.predict.job.modelled_job import MANY_SHORT, modelled_job
from prismdbg.predict.model import model_file
from prismdbg.predict.model.model import Attention, Model, Norm
from prismdbg.predict.model.training import Recompute, Training
from prismdbg.predict.samples.collective_files import not_used
from prismdbg.predict.samples.sample_folder import read_folder
from prismdbg.simulate.cluster import cluster_file
from prismdbg.simulate.engine.simulate import simulate
from prismdbg.simulate.engine.timeline import Timeline
from prismdbg.simulate.graph.mesh import Mesh

PREDICTION_ERROR = 0.1078  # the largest of eight iterations (docs/prediction.md, Selene), as `predict` says them
WIDTHS, TENSOR_PARALLEL, SEQUENCE, GPU = range(6_144, 25_600 + 1), 8, 2_048, "A100"  # of these eight
RECOMPUTATION = {(Recompute.FULL, False), (Recompute.SELECTIVE, True)}  # with sequence parallelism
FORM = {"norm": Norm.LAYER, "attention": Attention.UNFUSED, "is_gated": False, "has_rope": False, "has_dropout": True}
# Shapes of these are outside the samples in the eight, too: their models are wider, or a rank has fewer tokens.
OUTSIDE = ("linear", "layernorm", "embedding", *(f"{stage}Stage_optimizer" for stage in ("first", "middle", "last")))
UNSAMPLED = {"dropout", "bias_dropout_add", "gradient_passes"}

Read = Callable[[Sequence[str], Mesh], tuple[Path, Training]]


@dataclass(frozen=True, slots=True)
class Described:
    """What is predicted."""

    model: Model
    training: Training


@dataclass(frozen=True, slots=True)
class Prediction:
    """`error`: a share, on each side; None outside of what was held against measured iterations."""

    timeline: Timeline
    error: float | None


class Predictor:
    """`read`: the file of a model and how it is trained, from the words of a command line. ops, cluster: files, which
    are read at once. tell: gets a line for each file that is left out. not_used: what is to be said of times of
    collectives in ops."""

    def __init__(self, read: Read, ops: Path, cluster: Path, tell: Callable[[str], None]) -> None:
        self._read = read
        samples = read_folder(ops, tell)
        self._times = OperatorTimes(samples)
        self._cluster = cluster_file.read(cluster)
        self.not_used = not_used(ops, samples.values(), cluster, self._cluster)

    def describe(self, words: Sequence[str], mesh: Mesh) -> Described:
        """`UsageError` where the words or the model's file are wrong."""
        path, training = self._read(words, mesh)
        return Described(model_file.read(path), training)

    def predict(self, described: Described) -> Prediction:
        """`UsageError` where the model cannot be divided so."""
        times = self._times.of_another_job()
        job = modelled_job(described.model, described.training, times)
        is_measured = GPU in times.gpu and _is_alike(described.model, described.training) and _is_as_sampled(job.doubts)
        return Prediction(simulate(job.graph, self._cluster), PREDICTION_ERROR if is_measured else None)


def _is_alike(model: Model, training: Training) -> bool:
    """A GPT as wide as those that were measured, trained as they were, on one replica."""
    return (
        all(getattr(model, name) == value for name, value in FORM.items())
        and (model.experts, model.kv_heads, model.ffn) == (0, model.heads, 4 * model.hidden)
        and model.hidden in WIDTHS
        and model.sequence == SEQUENCE
        and (training.tp, training.replicas) == (TENSOR_PARALLEL, 1)
        and (training.recompute, training.is_sequence_parallel) in RECOMPUTATION
    )


def _is_as_sampled(doubts: Doubts) -> bool:
    """As far as those were that were measured."""
    return (
        all(shape.split()[0] in OUTSIDE and "vocabulary=" not in what for shape, what in doubts.outside.items())
        and doubts.unsampled.keys() <= UNSAMPLED
        and doubts.short_share < MANY_SHORT
    )
