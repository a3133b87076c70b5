"""Configurations that do not run: each is a prediction from times of single operators."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from prismdbg.predict.fit.operator_times import OperatorTimes
from prismdbg.predict.job.modelled_job import modelled_job
from prismdbg.predict.model import model_file
from prismdbg.predict.model.model import Attention, Model
from prismdbg.predict.model.training import Recompute, Training
from prismdbg.predict.samples.collective_files import not_used
from prismdbg.predict.samples.sample_folder import read_folder
from prismdbg.simulate.cluster import cluster_file
from prismdbg.simulate.engine.simulate import simulate
from prismdbg.simulate.engine.timeline import Timeline
from prismdbg.simulate.graph.mesh import Mesh

PREDICTION_ERROR = 0.0713  # the largest of eight iterations (docs/prediction.md, Selene), as `predict` says them
WIDTHS, TENSOR_PARALLEL = range(6_144, 25_600 + 1), 8  # of these eight

Read = Callable[[Sequence[str], Mesh], tuple[Path, Training]]


@dataclass(frozen=True, slots=True)
class Described:
    """What is predicted."""

    model: Model
    training: Training


class Predictor:
    """`read`: the file of a model and how it is trained, from the words of a command line. ops, cluster: files, which
    are read at once. not_used: what is to be said of times of collectives in ops."""

    def __init__(self, read: Read, ops: Path, cluster: Path) -> None:
        self._read = read
        samples = read_folder(ops)
        self._times = OperatorTimes(samples)
        self._cluster = cluster_file.read(cluster)
        self.not_used = not_used(ops, samples.values(), cluster, self._cluster)

    def describe(self, words: Sequence[str], mesh: Mesh) -> Described:
        """`UsageError` where the words or the model's file are wrong."""
        path, training = self._read(words, mesh)
        return Described(model_file.read(path), training)

    def error(self, described: Described) -> float | None:
        """A share, on each side. None outside of what was held against measured iterations: dense models with unfused
        attention, as wide as these, with as many ranks of tp, one replica, recomputation, and published operators."""
        model, training = described.model, described.training
        is_known = (
            not self._times.is_of_program
            and not model.experts
            and model.attention is Attention.UNFUSED
            and model.hidden in WIDTHS
            and training.tp == TENSOR_PARALLEL
            and training.replicas == 1
            and training.recompute is not Recompute.NONE
        )
        return PREDICTION_ERROR if is_known else None

    def predict(self, described: Described) -> Timeline:
        """`UsageError` where the model cannot be divided so."""
        times = self._times.of_another_job()
        return simulate(modelled_job(described.model, described.training, times).graph, self._cluster)
