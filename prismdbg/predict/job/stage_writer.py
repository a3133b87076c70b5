"""Writes what a rank of one pipeline stage does in an iteration, with times of operators from the samples."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from prismdbg.predict.fit.operator_times import OperatorTimes
from prismdbg.predict.job.schedule import Turn, turns
from prismdbg.predict.job.sharded_weights import Does, ShardedWeights, Unit
from prismdbg.predict.model.layer import Half, Layer, Operator
from prismdbg.predict.model.memory import WIDE_BYTES, Parameters, StageMemory, divided
from prismdbg.predict.model.model import Model
from prismdbg.predict.model.training import DP, EP, PP, TP, Recompute, Training
from prismdbg.predict.samples.samples import Phase
from prismdbg.simulate.graph.entries import Entries, Provenance
from prismdbg.simulate.graph.entry_writer import EntryWriter

SHORT_NS = 50_000  # a host that runs PyTorch needs tens of microseconds for an operator, forward or backward
COMPUTED, RECOMPUTED = "model", "model, again in the backward pass"  # lines of computations


class StageWriter:
    """`short_ns`: of what was computed, in operators that take less than `SHORT_NS`."""

    def __init__(self, model: Model, training: Training, memory: StageMemory, times: OperatorTimes) -> None:
        self._model, self._training, self._memory, self._times = model, training, memory, times
        self._stage = memory.stage
        self._layer = Layer(model=model, training=training)
        self._halves = self._layer.halves()
        self._first, self._last = self._layer.first(), self._layer.last()
        self.short_ns = 0
        self._taken: dict[tuple[int, Phase], list[tuple[int, Provenance]]] = {}  # by the identity of lists held here
        self._layers = model.layers // (training.pp * training.interleave)
        self._writer = EntryWriter()
        self._pending = {Provenance.MODELLED: 0, Provenance.ASSUMED: 0}
        self._linears: dict[str, tuple[int, Provenance]] = {}
        self._label, self._line = "", COMPUTED
        self._sends: dict[str, int] = {}
        does = Does(collective=self._in_background, wait=self._wait, allocate=self._allocate)
        self._sharded = ShardedWeights(model, training, does)

    def entries(self) -> Entries:
        self._hold()
        for turn in turns(self._stage, self._training.pp, self._training.microbatches, self._training.interleave):
            self._label = f"{'F' if turn.is_forward else 'B'}{turn.microbatch}"
            if turn.is_forward:
                self._forward(turn)
            else:
                self._backward(turn)
        self._finish()
        return self._writer.done()

    def _forward(self, turn: Turn) -> None:
        if not self._is_first(turn):
            self._receive("pp-1#f")
        self._allocate(self._layers * self._memory.layer_activation_bytes)
        for unit in self._sharded.through(self._units(turn), backward=False):
            if unit is Unit.EMBEDDING:
                self._run(self._first, Phase.FORWARD)
                self._reduce_hidden()  # of the vocabulary's parts
            elif unit is Unit.LAYER:
                self._layer_forward()
            else:
                self._allocate(self._memory.head_bytes)
                self._gather_sequence()
                self._run(self._last, Phase.FORWARD)
                self._reduce_loss()
        if not self._is_last(turn):
            self._send("pp+1#f")

    def _backward(self, turn: Turn) -> None:
        if not self._is_last(turn):
            self._receive("pp+1#b")
        self._allocate(self._memory.workspace_bytes)
        for unit in self._sharded.through(self._units(turn)[::-1], backward=True):
            if unit is Unit.OUTPUT:
                self._run(self._last, Phase.BACKWARD)
                self._reduce_hidden()
                self._allocate(-self._memory.head_bytes)
            elif unit is Unit.LAYER:
                self._layer_backward()
            else:
                self._gather_sequence()
                self._run(self._first, Phase.BACKWARD)
        if not self._is_first(turn):
            self._send("pp-1#b")
        self._allocate(-self._layers * self._memory.layer_activation_bytes - self._memory.workspace_bytes)

    def _units(self, turn: Turn) -> list[Unit]:
        before = [Unit.EMBEDDING] if self._is_first(turn) else []
        after = [Unit.OUTPUT] if self._is_last(turn) else []
        return [*before, *[Unit.LAYER] * self._layers, *after]

    def _layer_forward(self) -> None:
        for half in self._halves:
            self._run(half.before, Phase.FORWARD)
            self._exchange(half)
            self._gather_sequence(half.copies)
            self._run(half.inside, Phase.FORWARD)
            self._reduce_hidden(half.copies)
            self._exchange(half)
            self._run(half.after, Phase.FORWARD)

    def _layer_backward(self) -> None:
        recompute = self._training.recompute
        if recompute is not Recompute.NONE:
            self._allocate(self._memory.recomputed_bytes)
        if recompute is Recompute.FULL:
            self._again(self._layer_forward)
        for half in reversed(self._halves):
            self._half_backward(half)
        if recompute is not Recompute.NONE:
            self._allocate(-self._memory.recomputed_bytes)

    def _again(self, run: Callable[[], None]) -> None:
        self._flush()
        self._line = RECOMPUTED
        run()
        self._flush()
        self._line = COMPUTED

    def _half_backward(self, half: Half) -> None:
        """The first linear's input is gathered again while its gradient is computed, and the gradient is reduced while
        those of the weights are computed, as Megatron does."""
        self._run(half.after, Phase.BACKWARD)
        self._exchange(half)
        self._gather_sequence(half.copies)
        if self._training.recompute is Recompute.SELECTIVE:
            self._again(lambda: self._run(half.core, Phase.FORWARD))
        self._run(half.inside_but_first, Phase.BACKWARD)
        first_ns, provenance = self._first_linear(half)
        gathered = self._gather_sequence(half.copies, is_blocking=False)
        self._compute(first_ns // 2, provenance, half.inside[0])
        self._wait(gathered)
        reduced = self._reduce_hidden(half.copies, is_blocking=False)
        self._compute(first_ns - first_ns // 2, provenance, half.inside[0])
        self._wait(reduced)
        self._exchange(half)
        self._run(half.before, Phase.BACKWARD)

    def _run(self, operators: Sequence[Operator], phase: Phase) -> None:
        key = (id(operators), phase)
        if key not in self._taken:
            self._taken[key] = [self._time(operator, phase) for operator in operators]
        for operator, (time_ns, provenance) in zip(operators, self._taken[key], strict=True):
            self._compute(time_ns, provenance, operator)

    def _time(self, operator: Operator, phase: Phase) -> tuple[int, Provenance]:
        sampled = self._times.is_sampled(operator.work, phase)
        time_ns = self._times.time_ns(operator.work, phase) * operator.count
        return time_ns, Provenance.MODELLED if sampled else Provenance.ASSUMED

    def _first_linear(self, half: Half) -> tuple[int, Provenance]:
        key = half.name
        if key not in self._linears:
            self._linears[key] = self._time(half.inside[0], Phase.BACKWARD)
        return self._linears[key]

    def _compute(self, time_ns: int, provenance: Provenance, operator: Operator) -> None:
        self._pending[provenance] += time_ns
        if time_ns < SHORT_NS * operator.count:
            self.short_ns += time_ns

    def _flush(self) -> None:
        for provenance, time_ns in self._pending.items():
            if time_ns:
                self._writer.compute(time_ns, self._label, line=self._line, provenance=provenance)
                self._pending[provenance] = 0

    def _allocate(self, size_bytes: int) -> None:
        if size_bytes:
            self._flush()
            self._writer.memory(size_bytes, self._label, provenance=Provenance.MODELLED)

    def _hold(self) -> None:
        held = {
            "weights": self._memory.weight_bytes,
            "gradients": self._memory.gradient_bytes,
            "optimizer": self._memory.optimizer_bytes,
        }
        for label, size_bytes in held.items():
            self._writer.memory(size_bytes, label, provenance=Provenance.MODELLED)

    def _collective(self, op: str, channel: str, size_bytes: int, *, is_blocking: bool = True) -> int:
        self._flush()
        return self._writer.collective(
            op, channel, size_bytes, blocking=is_blocking, label=self._label, line=f"{op} {channel}"
        )

    def _wait(self, entry: int | None) -> None:
        if entry is not None:
            self._flush()
            self._writer.wait(entry, line=COMPUTED)

    def _gather_sequence(self, copies: int = 1, *, is_blocking: bool = True) -> int | None:
        """Sequence parallel: the whole sequence before the linears, each token so often."""
        if self._training.tp == 1 or not self._training.is_sequence_parallel:
            return None
        return self._collective("all_gather", TP, copies * self._layer.hidden_bytes, is_blocking=is_blocking)

    def _reduce_hidden(self, copies: int = 1, *, is_blocking: bool = True) -> int | None:
        if self._training.tp == 1:
            return None
        op = "reduce_scatter" if self._training.is_sequence_parallel else "all_reduce"
        return self._collective(op, TP, copies * self._layer.hidden_bytes, is_blocking=is_blocking)

    def _reduce_loss(self) -> None:
        """Each rank has a part of the vocabulary: the largest score, the sum and the target's are of all."""
        for _ in range(3 if self._training.tp > 1 else 0):
            self._collective("all_reduce", TP, WIDE_BYTES * self._layer.tokens)

    def _exchange(self, half: Half) -> None:
        """Tokens go to the ranks of their experts, or come back."""
        if half.exchanged_bytes and self._training.ep > 1:
            self._collective("all_to_all", EP, half.exchanged_bytes)

    def _receive(self, channel: str) -> None:
        """Each tensor parallel rank gets its part; if the sequence is not divided, the whole is gathered."""
        self._flush()
        self._writer.recv(channel, self._boundary_bytes, label=self._label, line="pipeline")
        if self._training.tp > 1 and not self._training.is_sequence_parallel:
            self._collective("all_gather", TP, self._layer.hidden_bytes)

    def _send(self, channel: str) -> None:
        self._flush()
        self._sends[channel] = self._writer.send(
            channel, self._boundary_bytes, stream=f"{channel} send", label=self._label, line="pipeline"
        )

    @property
    def _boundary_bytes(self) -> int:
        return self._layer.hidden_bytes // self._training.tp

    def _finish(self) -> None:
        self._label = "step"
        for sent in self._sends.values():
            self._wait(sent)
        tr = self._training
        if tr.pp > 1 and self._model.is_tied and self._stage in (0, tr.pp - 1):
            self._collective("all_reduce", f"{PP}[0,{tr.pp - 1}]", self._table_bytes)
        own = Parameters(
            dense=self._memory.parameters - self._memory.expert_parameters, experts=self._memory.expert_parameters
        )
        if tr.zero < 2:
            self._over_replicas("reduce_scatter" if tr.zero else "all_reduce", own, tr.gradient_bytes)
        if tr.mesh.world > 1:
            self._collective("all_reduce", "world", 4)
        updated = divided(own, tr, tr.zero >= 1)
        for operator in self._layer.step(self._stage, self._memory.parameters, updated):
            self._compute(*self._time(operator, Phase.WHOLE), operator)
        if tr.zero in (1, 2):
            self._over_replicas("all_gather", own, tr.value_bytes)
        self._flush()

    def _in_background(self, op: str, parameters: Parameters, item_bytes: int) -> list[int]:
        return self._over_replicas(op, parameters, item_bytes, is_blocking=False)

    def _over_replicas(
        self, op: str, parameters: Parameters, item_bytes: int, *, is_blocking: bool = True
    ) -> list[int]:
        """Experts are the same on the ranks of dp alone."""
        found = []
        for axes, count in (((DP, EP), parameters.dense), ((DP,), parameters.experts)):
            shared = ",".join(axis for axis in axes if self._training.sizes[axis] > 1)
            if shared and count:
                found.append(self._collective(op, shared, count * item_bytes, is_blocking=is_blocking))
        return found

    @property
    def _table_bytes(self) -> int:
        tr = self._training
        parts = tr.replicas if tr.zero >= 2 else 1
        return self._model.table_parameters // tr.tp // parts * tr.gradient_bytes

    def _is_first(self, turn: Turn) -> bool:
        return self._stage == 0 and turn.chunk == 0

    def _is_last(self, turn: Turn) -> bool:
        return self._stage == self._training.pp - 1 and turn.chunk == self._training.interleave - 1
