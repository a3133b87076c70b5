"""The job graph of a model that is trained on a mesh: a class for each pipeline stage. Nothing ran."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from prismdbg.model.meanwhile import one_by_one
from prismdbg.predict.fit.operator_times import Doubts, OperatorTimes
from prismdbg.predict.job.stage_writer import RECOMPUTED, SHORT_NS, StageWriter
from prismdbg.predict.model.memory import StageMemory, stage_memory
from prismdbg.predict.model.model import Model
from prismdbg.predict.model.training import PP, Training
from prismdbg.simulate.graph.entries import Entries, Kind
from prismdbg.simulate.graph.job_graph import JobGraph, RankClass
from prismdbg.simulate.graph.mesh import Ints, Mesh
from prismdbg.simulate.graph.origin import Origin, Source
from prismdbg.simulate.quantities import MILLION

MANY_SHORT = 0.1  # of the computation


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ModelledJob:
    """`memory`: by stage. doubts: what is not between samples, and what has none."""

    graph: JobGraph
    memory: tuple[StageMemory, ...]
    doubts: Doubts


def modelled_job(model: Model, training: Training, times: OperatorTimes) -> ModelledJob:
    """UsageError where the model cannot be divided so."""
    training.check(model)
    training = replace(training, value_bytes=times.value_bytes)
    memory = tuple(stage_memory(model, training, stage) for stage in range(training.pp))
    writers = [StageWriter(model, training, held, times) for held in memory]
    classes = tuple(
        RankClass(name=f"stage {stage}", entries=writer.entries())
        for stage, writer in enumerate(one_by_one(writers, "calculating stages"))
    )
    times.doubts.short_share = _short_share(writers, classes, times)
    graph = JobGraph.placed(
        training.mesh, classes, _class_at(training.mesh), np.full(training.mesh.world, MILLION, dtype=np.int64)
    )
    origin = Origin(source=Source.ARITHMETIC, doubts=_said(times.doubts))
    return ModelledJob(graph=replace(graph, origin=origin), memory=memory, doubts=times.doubts)


def recomputed_share(graph: JobGraph) -> float:
    """Of all time that ranks of a modelled job compute: what the backward pass computes again."""
    recomputed_ns = computed_ns = 0
    for count, rank_class in zip(graph.class_sizes, graph.classes, strict=True):
        entries = rank_class.entries
        computes = entries.kind == Kind.COMPUTE
        computed_ns += count * int(entries.duration_ns[computes].sum())
        recomputed_ns += count * int(entries.duration_ns[computes & _is_again(entries)].sum())
    return recomputed_ns / max(computed_ns, 1)


def _short_share(writers: Sequence[StageWriter], classes: Sequence[RankClass], times: OperatorTimes) -> float:
    """0 with operators of a program, which were timed as it calls them."""
    entries = [each.entries for each in classes]
    computed_ns = sum(int(each.duration_ns[each.kind == Kind.COMPUTE].sum()) for each in entries)
    return 0.0 if times.is_of_program else sum(writer.short_ns for writer in writers) / max(computed_ns, 1)


def _is_again(entries: Entries) -> NDArray[np.bool_]:
    return np.array([text == RECOMPUTED for text in entries.texts], dtype=np.bool_)[entries.line]


def _said(doubts: Doubts) -> tuple[str, ...]:
    outside = f"times of operators with shapes outside what was sampled: {len(doubts.outside)} in all"
    short = (
        f"launch times, which are not included: {doubts.short_share:.0%} of the computation is in operators below "
        f"{SHORT_NS // 1000} µs"
    )
    return (
        *((outside,) if doubts.outside else ()),
        *((short,) if doubts.short_share >= MANY_SHORT else ()),
        *(f"times of {what}" for what in doubts.unsampled.values()),
    )


def _class_at(mesh: Mesh) -> Ints:
    at = np.zeros(mesh.sizes, dtype=np.int64)
    if PP in mesh.names:
        place = [1] * len(mesh.names)
        place[mesh.axis(PP)] = mesh.size(PP)
        at += np.arange(mesh.size(PP)).reshape(place)
    return at.ravel()
