"""One iteration of a whole job simulated: GPT under TP8 x PP16 x DP, 1F1B, on one core."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TypeVar

import numpy as np

from prismdbg.simulate.cluster.cluster import example
from prismdbg.simulate.engine.critical_path import critical_path
from prismdbg.simulate.engine.simulate import simulate
from prismdbg.simulate.graph import graph_file
from prismdbg.simulate.graph.gpt_job import GptShape, gpt_job
from prismdbg.simulate.graph.job_graph import JobGraph
from prismdbg.simulate.graph.mesh import Ints, Mesh
from tests.bench.settings import Settings
from tests.bench.table import Measured, Row

TITLE = "A whole job simulated"
SHAPE = GptShape(layers=128, hidden=16384, microbatches=96)
GOALS_S = {64: 1.0, 1024: 5.0}  # by the size of dp
STORED_GOAL_MB = 100.0
MEGABYTE = 10**6

T = TypeVar("T")


def measure(settings: Settings, folder: Path) -> Measured:
    repeats = 7 if settings.rounds > 5 else 2
    rows: list[Row] = []
    notes: list[str] = []
    for dp, goal_s in GOALS_S.items():
        mesh = Mesh.parse(f"pp=16,dp={dp},tp=8")
        graph, built = _timed(1, partial(gpt_job, mesh, SHAPE))
        rows += [Row(what=f"{mesh.world:,} ranks: make and stitch the graph", values=built, unit="s", digits=2)]
        rows += _simulated(mesh, graph, goal_s, repeats)
        notes.append(f"{mesh.world:,} ranks: {graph.events / 1e6:,.0f} million events in an iteration.")
        if dp == 64:
            rows += _stored(graph, folder)
    return Measured(
        rows=rows,
        notes=[
            *notes,
            "A run is `simulate`: from the graph to per-rank times, waits by channel, timelines of one rank a class. "
            "'All different': each rank computes at a speed of its own, so that nothing can be folded.",
        ],
    )


def _simulated(mesh: Mesh, graph: JobGraph, goal_s: float, repeats: int) -> list[Row]:
    different = gpt_job(mesh, SHAPE, compute_ppm=_speeds(mesh))
    rows = []
    for what, job in (("all alike", graph), ("all different", different)):
        _, taken = _timed(repeats, partial(simulate, job, example()))
        title = f"{mesh.world:,} ranks, {what}"
        rows.append(Row(what=title, values=taken, unit="s", goal=goal_s, digits=2))
    _, taken = _timed(max(repeats // 3, 1), lambda: critical_path(simulate(different, example(), trace=True)))
    rows.append(
        Row(what=f"{mesh.world:,} ranks, all different, with the critical path", values=taken, unit="s", digits=2)
    )
    return rows


def _speeds(mesh: Mesh) -> Ints:
    return np.random.default_rng(0).integers(1_000_000, 1_050_000, mesh.world)


def _stored(graph: JobGraph, folder: Path) -> list[Row]:
    path = folder / "graph.npz"
    graph_file.save(graph, path)
    sizes = {"in memory": graph.stored_bytes, "saved": path.stat().st_size}
    return [
        Row(
            what=f"{graph.mesh.world:,} ranks: the graph {where}",
            values=[size / MEGABYTE],
            unit="MB",
            goal=STORED_GOAL_MB,
        )
        for where, size in sizes.items()
    ]


def _timed(repeats: int, action: Callable[[], T]) -> tuple[T, list[float]]:
    taken = []
    for _ in range(repeats):
        begun = time.perf_counter()
        result = action()
        taken.append(time.perf_counter() - begun)
    return result, taken
