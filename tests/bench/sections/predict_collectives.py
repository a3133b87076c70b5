"""What a cluster file says of collectives: of shapes between those that were measured, and, of groups with several
ranks in each of several nodes, where no such group was measured."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from statistics import mean, median

import numpy as np

from prismdbg.predict.fit.regressor import fitted
from prismdbg.predict.samples.collective_files import OPS, read_collectives
from prismdbg.predict.samples.sample_folder import read_folder
from prismdbg.predict.samples.samples import Phase, Samples
from prismdbg.simulate.cluster.calibration import Sample, model_ns
from prismdbg.simulate.cluster.cluster import Calibration, ClusterModel, Tier
from prismdbg.simulate.cluster.collective_tables import tabulated
from prismdbg.simulate.cluster.tier_fit import Point, fit_formula, point_ns
from prismdbg.simulate.cluster.transfer import Geometry
from prismdbg.simulate.quantities import say_rate
from tests.bench.held_out import in_short
from tests.bench.jobs import BenchError
from tests.bench.settings import Settings
from tests.bench.table import Measured, Row

TITLE = "Collectives by a cluster file, against what was measured"
ONE_OF, HELD_OUT = 5, 2  # of each layout every fifth shape, from the third
COLUMNS = ("shape", "nodes", "GPUsPerNode")
COLLECTIVES = {"allreduce_large": "all_reduce", "allgather_large": "all_gather"}
FITTED = frozenset({(1, 4), (2, 1), (4, 1), (8, 1)})  # nodes and GPUs of each
EACH = 40  # shapes of a place, spread evenly
NODES_OF_FOUR = ClusterModel(
    tiers=(Tier(name="node", spans=4, latency_ns=0, rate=0), Tier(name="network", spans=0, latency_ns=0, rate=0)),
    ranks_per_node=4,
)


def measure(settings: Settings, folder: Path) -> Measured:
    if settings.data is None or not settings.data.is_dir():
        raise BenchError("give --data PATH, the folder of measured figures: the project holds none of them")
    points = list(_points(read_folder(settings.data / "a100-collectives")))
    parts = [_of([point for point in points if point.op == op]) for op in COLLECTIVES.values()]
    parts.append(_between_shapes(settings.data / "a100-collectives"))
    return Measured(
        rows=[row for part in parts for row in part.rows],
        notes=[
            f"Tables are made of {ONE_OF - 1} of {ONE_OF} shapes of each layout, as `calibrate --from` makes them; "
            "errors are those of the others. Regressors are fitted to the same shapes, each collective by itself.",
            "The formula is fitted to one node of four A100 and to several nodes with one, of each collective by "
            f"itself. It is asked for other places, of which it has seen nothing. Of each place, {EACH} shapes.",
            *(note for part in parts for note in part.notes),
        ],
    )


def _of(points: list[Point]) -> Measured:
    op = points[0].op
    by_formula = fit_formula(NODES_OF_FOUR, [point for point in points if _place(point) in FITTED])
    found: dict[tuple[int, int], list[float]] = {}
    for point in points:
        if _place(point) not in FITTED:
            found.setdefault(_place(point), []).append(100 * (point_ns(by_formula, point) / point.time_ns - 1))
    across = [mean(map(abs, signed)) for (nodes, _), signed in found.items() if nodes > 1]
    rates = ", ".join(f"{tier.name} {say_rate(tier.rate)}" for tier in by_formula.tiers)
    return Measured(
        rows=[
            Row(what=f"{op}, two nodes with several GPUs: mean error of each place", values=across, unit="%", digits=2)
        ],
        notes=[
            f"{op}, fitted: {by_formula.algorithms[op][-1].algorithm}, {rates}",
            *(f"{op}, {nodes} x {gpus}: {in_short(signed)}" for (nodes, gpus), signed in found.items()),
        ],
    )


def _between_shapes(folder: Path) -> Measured:
    """Both of the same: tables as `calibrate --from` makes them, and the regressors of `predict`."""
    times, known = read_collectives([folder]), read_folder(folder)
    held = {op_where_size for each in _by_layout(times.samples) for op_where_size in each[HELD_OUT::ONE_OF]}
    kept = [sample for sample in times.samples if _place_of(sample) not in held]
    cluster = tabulated(kept, Calibration(machine="", backend="", date="", fits={})).cluster
    tables: dict[str, list[float]] = {}
    for sample in sorted((s for s in times.samples if _place_of(s) in held), key=_place_of):
        tables.setdefault(_layout(sample), []).append(100 * (model_ns(cluster, sample) / sample.time_ns - 1))
    trees = _by_regressors(known.values(), held)
    means = [{name: mean(map(abs, found[name])) for name in tables} for found in (tables, trees)]
    return Measured(
        rows=[
            Row(
                what=f"tables, every {ONE_OF}th shape held out: mean error of each layout",
                values=list(means[0].values()),
                against=f"regressors, of the same: {median(means[1].values()):.2f} %",
                unit="%",
                digits=2,
            )
        ],
        notes=[
            f"tables, {name}: {in_short(signed)}; regressors: {in_short(trees[name])}"
            for name, signed in tables.items()
        ],
    )


Place = tuple[str, int, int, int]


def _place_of(sample: Sample) -> Place:
    return sample.op, sample.where.nodes, sample.where.local, sample.size_bytes


def _layout(sample: Sample) -> str:
    return f"{sample.op}, {sample.where.nodes} x {sample.where.local}"


def _by_layout(samples: Iterable[Sample]) -> list[list[Place]]:
    found: dict[str, list[Place]] = {}
    for sample in samples:
        found.setdefault(_layout(sample), []).append(_place_of(sample))
    return [sorted(places) for places in found.values()]


def _by_regressors(known: Iterable[Samples], held: set[Place]) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {}
    for samples in known:
        op = OPS[samples.operator.partition("_")[0]]
        places = [_at(op, *row) for row in zip(*(samples.columns[name] for name in COLUMNS), strict=True)]
        is_held = np.array([place in held for place in places])
        asked = samples.chosen(is_held)
        errors = 100 * (
            fitted([samples.chosen(~is_held)], Phase.WHOLE).time_ns(asked.work) / asked.times_ns[Phase.WHOLE] - 1
        )
        for (name, nodes, local, _), error in zip((p for p in places if p in held), errors.tolist(), strict=True):
            found.setdefault(f"{name}, {nodes} x {local}", []).append(error)
    return found


def _at(op: str, shape: float, nodes: float, local: float) -> Place:
    parts = nodes * local if op == "all_gather" else 1
    return op, int(nodes), int(local), round(2 * parts * shape)


def _points(known: Mapping[str, Samples]) -> Iterator[Point]:
    """Elements have 16 bits. An all-reduce's shape is that of its message, an all-gather's that of one rank's part."""
    for operator, op in COLLECTIVES.items():
        columns, time_ns = known[operator].columns, known[operator].times_ns[Phase.WHOLE]
        for nodes, gpus in sorted(set(zip(columns["nodes"], columns["GPUsPerNode"], strict=True))):
            rows = np.flatnonzero((columns["nodes"] == nodes) & (columns["GPUsPerNode"] == gpus))
            where = _geometry(int(nodes), int(gpus))
            parts = where.members if op == "all_gather" else 1
            for row in rows[np.linspace(0, len(rows) - 1, min(EACH, len(rows)), dtype=int)].tolist():
                yield Point(op, where, round(2 * parts * columns["shape"][row]), float(time_ns[row]))


def _geometry(nodes: int, local: int) -> Geometry:
    across = int(nodes > 1)
    return Geometry(members=nodes * local, tier=across, nodes=nodes, local=local, sharing=across)


def _place(point: Point) -> tuple[int, int]:
    return point.where.nodes, point.where.local
