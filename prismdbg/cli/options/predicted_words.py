"""The words of a `predict` command line, read as that command reads them, for `prismdbg sweep --how predict`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import click

from prismdbg.errors import UsageError
from prismdbg.predict.fit.operator_times import OperatorTimes
from prismdbg.predict.job.modelled_job import modelled_job
from prismdbg.predict.model import model_file
from prismdbg.predict.model.training import Training
from prismdbg.predict.samples.sample_folder import read_folder
from prismdbg.simulate.cluster import cluster_file
from prismdbg.simulate.engine.simulate import simulate
from prismdbg.simulate.engine.timeline import Timeline
from prismdbg.simulate.graph.mesh import Mesh

Read = Callable[[list[str]], tuple[Path, Training]]


class Predictor:
    """`read`: a model's file and how it is trained, from the words of a command line."""

    def __init__(self, read: Read, ops: Path | None, cluster: Path | None) -> None:
        if ops is None or cluster is None:
            raise UsageError("--how predict needs --ops and --cluster", hint="give both, as for `prismdbg predict`")
        self._read = read
        self._ops = str(ops)
        self._cluster_path = str(cluster)
        self._times = OperatorTimes(read_folder(ops))
        self._cluster = cluster_file.read(cluster)

    def __call__(self, words: Sequence[str], mesh: Mesh) -> Timeline:
        """`UsageError` where the model cannot be trained so."""
        given = ["--ops", self._ops, "--cluster", self._cluster_path, "--mesh", str(mesh)]
        try:
            path, training = self._read([*words, *given])
        except click.ClickException as error:
            raise UsageError(error.format_message(), hint="see `prismdbg predict --help`") from error
        return simulate(modelled_job(model_file.read(path), training, self._times).graph, self._cluster)
