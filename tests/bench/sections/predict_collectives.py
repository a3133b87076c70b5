"""What a cluster file says of groups with several ranks in each of several nodes, where no such group was measured."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from statistics import mean

import numpy as np

from prismdbg.predict.samples.sample_folder import read_folder
from prismdbg.predict.samples.samples import Phase, Samples
from prismdbg.simulate.cluster.cluster import ClusterModel, Tier
from prismdbg.simulate.cluster.tier_fit import Point, fit_formula, point_ns
from prismdbg.simulate.cluster.transfer import Geometry
from prismdbg.simulate.quantities import say_rate
from tests.bench.held_out import in_short
from tests.bench.jobs import BenchError
from tests.bench.settings import Settings
from tests.bench.table import Measured, Row

TITLE = "Collectives by the formula of a cluster file, against what was measured"
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
    return Measured(
        rows=[row for part in parts for row in part.rows],
        notes=[
            "The formula is fitted to one node of four A100 and to several nodes with one, of each collective by "
            f"itself. It is asked for other places, of which it has seen nothing. Of each place, {EACH} shapes.",
            *(note for part in parts for note in part.notes),
        ],
    )


def _of(points: list[Point]) -> Measured:
    op = points[0].op
    fitted = fit_formula(NODES_OF_FOUR, [point for point in points if _place(point) in FITTED])
    found: dict[tuple[int, int], list[float]] = {}
    for point in points:
        if _place(point) not in FITTED:
            found.setdefault(_place(point), []).append(100 * (point_ns(fitted, point) / point.time_ns - 1))
    across = [mean(map(abs, signed)) for (nodes, _), signed in found.items() if nodes > 1]
    rates = ", ".join(f"{tier.name} {say_rate(tier.rate)}" for tier in fitted.tiers)
    return Measured(
        rows=[
            Row(what=f"{op}, two nodes with several GPUs: mean error of each place", values=across, unit="%", digits=2)
        ],
        notes=[
            f"{op}, fitted: {fitted.algorithms[op][-1].algorithm}, {rates}",
            *(f"{op}, {nodes} x {gpus}: {in_short(signed)}" for (nodes, gpus), signed in found.items()),
        ],
    )


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
