"""Whole iterations that were measured elsewhere, predicted: Megatron on Selene, and Megatron-DeepSpeed on one node."""

from __future__ import annotations

import csv
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, fields, replace
from functools import cache
from pathlib import Path

import numpy as np
from scipy.optimize import nnls
from sklearn.ensemble import ExtraTreesRegressor

from prismdbg.predict.fit.operator_times import OperatorTimes
from prismdbg.predict.job.modelled_job import modelled_job
from prismdbg.predict.model.model import Attention, Model, Norm
from prismdbg.predict.model.training import Recompute, Training
from prismdbg.predict.samples.sample_folder import read_folder
from prismdbg.predict.samples.samples import Phase
from prismdbg.simulate.cluster.cluster import Algorithm, Choice, ClusterModel, Tier
from prismdbg.simulate.cluster.transfer import Geometry, collective_ns
from prismdbg.simulate.engine.simulate import simulate
from prismdbg.simulate.graph.entries import Kind
from prismdbg.simulate.graph.job_graph import JobGraph
from prismdbg.simulate.graph.mesh import Mesh
from prismdbg.simulate.quantities import MILLION

VOCABULARY = 51_200
NODE = 8
BETWEEN_NODES = Tier(name="fabric", spans=0, latency_ns=10_000, rate=24 * 10**9)  # 200 Gbit/s of a GPU; assumed
GIB = 1 << 30
SMS, CHANNELS = 108, 24  # of an A100; that NCCL's collectives take of them in a node of eight (nccl-tests issue 100)
FIXED_BYTES = 2 + 4 + 12  # of a parameter: weight, gradient, optimizer


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A row: measured_s, and predicted. plain_s: as `prismdbg predict` says, without the factor of `with_overlap`. Both
    memories are of a rank of the first stage, without what libraries take. published_gib is calculated, too: by the
    equations of its source, which leave the embedding out."""

    name: str
    measured_s: float
    predicted_s: float
    plain_s: float
    published_gib: float = 0.0
    predicted_gib: float = 0.0

    @property
    def error(self) -> float:
        """In percent."""
        return 100 * (self.predicted_s / self.measured_s - 1)

    @property
    def plain_error(self) -> float:
        return 100 * (self.plain_s / self.measured_s - 1)

    @property
    def memory_error(self) -> float:
        return 100 * (self.predicted_gib / self.published_gib - 1)


@cache
def operator_times(data: Path) -> OperatorTimes:
    return OperatorTimes(read_folder(data / "a100-operators"))


@cache
def node_of_a100(data: Path) -> ClusterModel:
    """The links of a node by all-reduces of four GPUs, as rings: least squares of the relative error. Others are
    assumed."""
    samples = read_folder(data / "a100-collectives")["allreduce"]
    at = (samples.columns["nodes"] == 1) & (samples.columns["GPUsPerNode"] == 4)
    size_bytes, time_ns = 2 * samples.columns["shape"][at], samples.times_ns[Phase.WHOLE][at]
    fixed_ns, ns_a_byte = np.linalg.lstsq(
        np.stack([1 / time_ns, size_bytes / time_ns], axis=1), np.ones(len(time_ns)), rcond=None
    )[0]
    rounds = 2 * (4 - 1)
    inside = Tier(
        name="nvlink", spans=NODE, latency_ns=round(fixed_ns / rounds), rate=round(1e9 * rounds / 4 / ns_a_byte)
    )
    return ClusterModel(
        tiers=(inside, BETWEEN_NODES), ranks_per_node=NODE, algorithms={"default": (Choice(Algorithm.RING),)}
    )


def with_overlap(cluster: ClusterModel, graph: JobGraph, tp: int, channels: int = CHANNELS) -> ClusterModel:
    """While a hidden collective is under way, a computation has the processors that its channels leave. The engine
    slows all that is computed until the wait for it, so the factor is that of the shorter time, over all hidden
    collectives."""
    entries = graph.classes[0].entries
    hidden = np.flatnonzero((entries.kind == Kind.COLLECTIVE) & (entries.blocking == 0))
    waits = np.flatnonzero(entries.kind == Kind.WAIT)
    computed_ns = np.concatenate([[0], np.cumsum(np.where(entries.kind == Kind.COMPUTE, entries.duration_ns, 0))])
    if not len(hidden):
        return cluster
    beside_ns = computed_ns[waits[np.searchsorted(waits, hidden)]] - computed_ns[hidden]
    where = Geometry(members=tp, tier=0, nodes=1, local=tp, sharing=0)
    each_ns = {
        (op, size): collective_ns(cluster, entries.texts[op], size, where)
        for op, size in set(zip(entries.op[hidden].tolist(), entries.size_bytes[hidden].tolist(), strict=True))
    }
    taken_ns = np.array([each_ns[int(entries.op[row]), int(entries.size_bytes[row])] for row in hidden])
    longer_ns = channels / SMS * np.minimum(taken_ns, beside_ns * SMS / (SMS - channels)).sum()
    return replace(cluster, compute_overlap_ppm=round(MILLION * (1 + longer_ns / beside_ns.sum())))


def gpt(layers: int, hidden: int, heads: int, sequence: int) -> Model:
    """As Megatron trained it: no flash attention, dropout, one table."""
    return Model(
        layers=layers,
        hidden=hidden,
        heads=heads,
        kv_heads=heads,
        ffn=4 * hidden,
        vocabulary=VOCABULARY,
        sequence=sequence,
        norm=Norm.LAYER,
        attention=Attention.UNFUSED,
        is_gated=False,
        has_rope=False,
        has_dropout=True,
        is_tied=True,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """Of an iteration: of a rank of the first stage, computation and what was exposed of communication, by axis."""

    iteration_ns: float
    computed_ns: float
    tp_ns: float
    pp_ns: float
    dp_ns: float
    late_ns: float
    peak_bytes: float
    workspace_bytes: float

    def further(self, other: Parts, times: float) -> Parts:
        """As much further from here as the other is, so often. The memory is what it is there."""
        moved = {
            field.name: getattr(self, field.name) + times * (getattr(other, field.name) - getattr(self, field.name))
            for field in fields(Parts)
        }
        return Parts(**{**moved, "peak_bytes": other.peak_bytes, "workspace_bytes": other.workspace_bytes})


def taken(data: Path, model: Model, training: Training, channels: int = CHANNELS) -> Parts:
    """Once all stages are busy, further microbatches (interleaved: as many as stages) take all the same time: of long
    iterations two short ones are simulated. With no channels, hidden collectives slow nothing."""
    each = training.pp if training.interleave > 1 else 1
    first = 2 * training.pp if training.interleave > 1 else training.pp + 1
    if training.microbatches <= first + each:
        return _simulated(data, model, training, channels)
    one, other = (
        _simulated(data, model, _with_microbatches(training, count), channels) for count in (first, first + each)
    )
    return one.further(other, (training.microbatches - first) / each)


def _with_microbatches(training: Training, count: int) -> Training:
    given = {f.name: getattr(training, f.name) for f in fields(Training) if f.init}
    return Training(**{**given, "batch": count * training.replicas * training.microbatch})


@cache
def _known(data: Path) -> dict[str, Parts]:
    return {}


def _simulated(data: Path, model: Model, training: Training, channels: int) -> Parts:
    known, key = _known(data), f"{model} {training} {channels}"
    if key not in known:
        job = modelled_job(model, training, operator_times(data))
        timeline = simulate(job.graph, with_overlap(node_of_a100(data), job.graph, training.tp, channels))
        shown = {name: float(values[0]) for name, values in timeline.shown_ns.items()}
        known[key] = Parts(
            iteration_ns=timeline.iteration_ns,
            computed_ns=float(timeline.computed_ns[0]),
            tp_ns=shown.get("tp", 0.0),
            pp_ns=sum(value for name, value in shown.items() if name.startswith("pp")),
            dp_ns=shown.get("dp", 0.0),
            late_ns=float(sum(values[0] for values in timeline.late_ns.values())),
            peak_bytes=float(job.graph.peak_bytes[0]),
            workspace_bytes=float(job.memory[0].workspace_bytes),
        )
    return known[key]


def selene(data: Path) -> list[Step]:
    """Eight iterations. Nothing is fitted to them, but their errors were known when the overlap factor was chosen."""
    found = []
    with (data / "selene.csv").open(newline="", encoding="utf-8-sig") as file:
        for row in csv.DictReader(file):
            found += [_selene(data, row, Recompute.FULL, "full_recompute", "")]
            found += [_selene(data, row, Recompute.SELECTIVE, *("selective_sequence_parallel",) * 2)]
    return found


def _selene(data: Path, row: dict[str, str], recompute: Recompute, time: str, memory: str) -> Step:
    model = gpt(*(int(row[name]) for name in ("layers", "hidden", "attention_heads", "sequence")))
    training = Training(
        mesh=Mesh.parse(f"pp={row['pipeline_parallel']},tp={row['tensor_parallel']}"),
        batch=int(row["batch"]),
        microbatch=int(row["microbatch"]),
        recompute=recompute,
        is_sequence_parallel=recompute is Recompute.SELECTIVE,
        interleave=int(row["interleave"]),
    )
    parts = taken(data, model, training)
    fixed_gib = float(row["params_optimizer_gib"])
    embedding_bytes = FIXED_BYTES * model.table_parameters // training.tp
    return Step(
        name=f"{row['model']}, {recompute} recomputation",
        measured_s=float(row[f"iteration_s_{time}"]),
        predicted_s=parts.iteration_ns / 1e9,
        plain_s=taken(data, model, training, channels=0).iteration_ns / 1e9,
        published_gib=fixed_gib + float(row[f"activations_{memory}_gib"]) if memory else 0.0,
        predicted_gib=(parts.peak_bytes - parts.workspace_bytes - embedding_bytes) / GIB,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeRow:
    """An iteration on one node. `key`: tp, dp and pp."""

    key: tuple[int, int, int]
    sizes: tuple[float, ...]
    measured_ns: float
    parts: Parts
    layers: float  # that a rank runs in an iteration
    microbatches: int
    tp: int


def one_node(data: Path) -> list[NodeRow]:
    with (data / "vtrain" / "single_node.csv").open(newline="", encoding="utf-8-sig") as file:
        return [_node_row(data, row) for row in list(csv.reader(file))[1:]]


def _node_row(data: Path, row: list[str]) -> NodeRow:
    _, batch, microbatch, hidden, heads, layers, sequence, tp, dp, pp = (int(text) for text in row[:10])
    training = Training(
        mesh=Mesh.parse(f"pp={pp},dp={dp},tp={tp}"), batch=batch, microbatch=microbatch, gradient_bytes=2
    )
    parts = taken(data, gpt(layers, hidden, heads, sequence), training)
    count = training.microbatches
    return NodeRow(
        key=(tp, dp, pp),
        sizes=(tp, dp, pp, microbatch, hidden, layers, count, parts.iteration_ns),
        measured_ns=1e6 * float(row[10]),
        parts=parts,
        layers=layers / pp * count,
        microbatches=count,
        tp=tp,
    )


def corrected(rows: Sequence[NodeRow], left_out: Sequence[Hashable]) -> list[float]:
    """Errors in percent. For each value of `left_out` (one for each row) what the prediction leaves out is fitted to
    the rows of all others: non-negative shares of its parts and of the launches, then trees on what is left."""
    system = np.array([_system(row) for row in rows])
    measured = np.array([row.measured_ns for row in rows])
    points = np.log2(np.array([row.sizes for row in rows]))
    predicted = np.zeros(len(rows))
    for value in sorted(set(left_out), key=str):
        out = np.array([other == value for other in left_out])
        shares, _ = nnls(system[~out] / measured[~out, None], np.ones((~out).sum()))
        base = system @ shares
        trees = ExtraTreesRegressor(100, random_state=0, min_samples_leaf=2)
        trees.fit(points[~out], np.log(measured[~out] / base[~out]))
        predicted[out] = base[out] * np.exp(trees.predict(points[out]))
    return [float(error) for error in 100 * (predicted / measured - 1)]


def _system(row: NodeRow) -> list[float]:
    parts = row.parts
    launches = [1e6 * row.layers, 1e6 * row.layers * (row.tp > 1), 1e6 * row.microbatches, 1e6]
    return [parts.computed_ns, parts.tp_ns, parts.pp_ns, parts.dp_ns, parts.late_ns, *launches]
