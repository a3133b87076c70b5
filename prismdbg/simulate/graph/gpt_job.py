"""The classes of a GPT's training step under tensor, pipeline and data parallelism, without running any of it.

For tests, benchmarks and plans: durations follow from the arithmetic at an assumed speed, nothing was measured.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from prismdbg.errors import UsageError
from prismdbg.model.meanwhile import one_by_one
from prismdbg.model.plurals import counted
from prismdbg.simulate.graph.entries import Entries, Provenance
from prismdbg.simulate.graph.entry_writer import EntryWriter
from prismdbg.simulate.graph.job_graph import JobGraph, RankClass
from prismdbg.simulate.graph.mesh import Ints, Mesh
from prismdbg.simulate.graph.origin import Origin, Source
from prismdbg.simulate.quantities import MILLION

TP, PP, DP = "tp", "pp", "dp"
_SECOND_NS = 10**9


@dataclass(frozen=True, slots=True, kw_only=True)
class GptShape:
    """Of the model and of one step. `flops`: what a rank does in a second. With sequence parallelism under tp."""

    layers: int
    hidden: int
    sequence: int = 4096
    vocabulary: int = 128_000
    microbatches: int = 32
    microbatch: int = 1
    item_bytes: int = 2
    flops: int = 400 * 10**12


def gpt_job(mesh: Mesh, shape: GptShape, *, compute_ppm: Ints | None = None) -> JobGraph:
    """A class for each pipeline stage; the axes tp, pp and dp, each of which may be missing. Schedule: 1F1B."""
    for name in mesh.names:
        if name not in (TP, PP, DP):
            raise UsageError(f"this model has no axis {name!r}", hint="use tp, pp and dp")
    stages = _size(mesh, PP)
    if shape.layers % stages:
        raise UsageError(
            f"{counted(shape.layers, 'layer')} cannot be divided among {counted(stages, 'stage')}",
            hint=f"use a multiple of {stages} layers",
        )
    numbers = one_by_one(range(stages), "calculating stages")
    classes = tuple(RankClass(name=f"stage {s}", entries=_Stage(mesh, shape, s).entries()) for s in numbers)
    place = [1] * len(mesh.names)
    class_at = np.zeros(mesh.sizes, dtype=np.int64)
    if PP in mesh.names:
        place[mesh.axis(PP)] = stages
        class_at += np.arange(stages).reshape(place)
    ppm = np.full(mesh.world, MILLION) if compute_ppm is None else compute_ppm[mesh.ranks().ravel()]
    graph = JobGraph.placed(mesh, classes, class_at.ravel(), ppm)
    return replace(graph, origin=Origin(source=Source.ARITHMETIC))


def _size(mesh: Mesh, name: str) -> int:
    return mesh.size(name) if name in mesh.names else 1


class _Stage:
    """Writes what one stage does in a step."""

    def __init__(self, mesh: Mesh, shape: GptShape, stage: int) -> None:
        self._writer = EntryWriter()
        self._shape = shape
        self._stage, self._stages = stage, _size(mesh, PP)
        self._tp, self._dp = _size(mesh, TP), _size(mesh, DP)
        self._layers = shape.layers // self._stages
        tokens = shape.sequence * shape.microbatch
        self._activation_bytes = tokens * shape.hidden * shape.item_bytes
        self._boundary_bytes = self._activation_bytes // self._tp
        self._layer_parameters = 12 * shape.hidden**2 // self._tp
        attention = tokens * (8 * shape.hidden**2 + 4 * shape.sequence * shape.hidden) // self._tp
        self._attention_ns = attention * _SECOND_NS // shape.flops
        self._mlp_ns = tokens * 16 * shape.hidden**2 // self._tp * _SECOND_NS // shape.flops
        self._head_ns = tokens * 2 * shape.hidden * shape.vocabulary // self._tp * _SECOND_NS // shape.flops
        self._sends: list[int] = []
        self._gradients: list[int] = []

    @property
    def _is_last(self) -> bool:
        return self._stage == self._stages - 1

    def entries(self) -> Entries:
        count = self._shape.microbatches
        ahead = min(self._stages - 1 - self._stage, count)
        for number in range(ahead):
            self._forward(number)
        for number in range(count - ahead):
            self._forward(ahead + number)
            self._backward(number, is_last=number == count - 1)
        for number in range(count - ahead, count):
            self._backward(number, is_last=number == count - 1)
        self._finish()
        return self._writer.done()

    def _forward(self, number: int) -> None:
        label = f"F{number}"
        if self._stage:
            self._writer.recv("pp-1", self._boundary_bytes, label=label, line="schedule:recv_forward")
        self._writer.memory(self._layers * self._boundary_bytes * 8, label)
        for _ in range(self._layers):
            self._block(label, "attention", self._attention_ns)
            self._block(label, "mlp", self._mlp_ns)
        if self._is_last:
            self._compute(f"{label} head", self._head_ns)
        else:
            self._send("pp+1", label, "schedule:send_forward")

    def _backward(self, number: int, *, is_last: bool) -> None:
        label = f"B{number}"
        if self._is_last:
            self._compute(f"{label} head", 2 * self._head_ns)
        else:
            self._writer.recv("pp+1", self._boundary_bytes, label=label, line="schedule:recv_backward")
        for _ in range(self._layers):
            self._block(label, "mlp", 2 * self._mlp_ns, again=True)
            self._block(label, "attention", 2 * self._attention_ns, again=True)
            if is_last and self._dp > 1:
                size_bytes = self._layer_parameters * self._shape.item_bytes
                self._gradients.append(
                    self._writer.collective("reduce_scatter", DP, size_bytes, blocking=False, line="ddp:reduce")
                )
        self._writer.memory(-self._layers * self._boundary_bytes * 8, label)
        if self._stage:
            self._send("pp-1", label, "schedule:send_backward")

    def _block(self, label: str, what: str, duration_ns: int, *, again: bool = False) -> None:
        """Between two computations the sequence is gathered and scattered; backward gathers the input again."""
        if self._tp > 1:
            for _ in range(2 if again else 1):
                self._writer.collective("all_gather", TP, self._activation_bytes, line=f"{what}:gather")
        self._compute(f"{label} {what}", duration_ns)
        if self._tp > 1:
            self._writer.collective("reduce_scatter", TP, self._activation_bytes, line=f"{what}:scatter")

    def _compute(self, label: str, duration_ns: int) -> None:
        self._writer.compute(duration_ns, label, line="model:forward", provenance=Provenance.ASSUMED)

    def _send(self, channel: str, label: str, line: str) -> None:
        """On a stream for each direction."""
        self._sends.append(
            self._writer.send(channel, self._boundary_bytes, stream=f"{channel} send", label=label, line=line)
        )

    def _finish(self) -> None:
        for entry in (*self._sends[-2:], *self._gradients):
            self._writer.wait(entry, line="step:wait")
        if self._stages > 1 and (self._is_last or not self._stage):
            size_bytes = self._shape.vocabulary * self._shape.hidden // self._tp * self._shape.item_bytes
            self._writer.collective("all_reduce", f"pp[0,{self._stages - 1}]", size_bytes, line="step:embedding")
        parameters = self._layers * self._layer_parameters
        self._writer.collective("all_reduce", "world", 4, line="step:clip", label="norm")
        self._compute("optimizer", max(parameters * 20 // self._dp * _SECOND_NS // (3 * 10**12), 1))
        if self._dp > 1:
            self._writer.collective("all_gather", DP, parameters * self._shape.item_bytes, line="step:gather")
