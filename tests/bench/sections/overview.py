"""The overview of 8,192 and of 131,072 ranks: how long until it is there, and what a key costs."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from pathlib import Path
from unittest.mock import patch

import numpy as np
from prismdbg_tui.overview.app import OverviewApp
from prismdbg_tui.overview.job import overview_job
from prismdbg_tui.overview.rank_screen import RankScreen

from prismdbg.job_graph.job_view import job_view
from prismdbg.simulate.graph import graph_file
from prismdbg.simulate.graph.gpt_job import GptShape, gpt_job
from prismdbg.simulate.graph.mesh import Mesh
from tests.bench.repaints import SIZE, Watched, key_ms
from tests.bench.settings import Settings
from tests.bench.table import Measured, Row

TITLE = "The overview of all ranks"
SHAPE = GptShape(layers=128, hidden=16384, microbatches=96)
GOALS_S = {64: 2.0, 1024: None}  # by the size of dp
KEY_GOAL_MS = 50.0
KEYS = {
    "right": "the cell to the right",
    "down": "the cell below",
    "m": "the next number",
    "full_stop": "the next smaller number",
    "r": "other axes",
    "plus": "zoom in",
    "minus": "zoom out",
    "e": "the other scale",
}


def measure(settings: Settings, folder: Path) -> Measured:
    repeats = 12 if settings.rounds > 5 else 3
    rows: list[Row] = []
    for dp, goal_s in GOALS_S.items():
        mesh = Mesh.parse(f"pp=16,dp={dp},tp=8")
        path = folder / f"{dp}.npz"
        speeds = np.random.default_rng(0).integers(1_000_000, 1_050_000, mesh.world)
        graph_file.save(gpt_job(mesh, SHAPE, compute_ppm=speeds), path)
        opened = [asyncio.run(_open(path)) for _ in range(max(repeats // 4, 2))]
        named = f"{mesh.world:,} ranks, all different"
        rows.append(Row(what=f"{named}: from the saved graph to the map", values=opened, unit="s", goal=goal_s))
        for key, values in asyncio.run(_keys(path, repeats)).items():
            rows.append(Row(what=f"{named}, key: {KEYS[key]}", values=values, unit="ms", goal=KEY_GOAL_MS, digits=1))
        into = asyncio.run(_into(path, max(repeats // 4, 2)))
        rows.append(Row(what=f"{named}: into a rank's simulated timeline", values=into, unit="s", digits=2))
    return Measured(
        rows=rows,
        notes=[
            "Opening is reading the graph, simulating and drawing. A key's time ends with the last repaint it causes, "
            "measured once the critical path, which is looked for beside, is found."
        ],
    )


class WatchedOverview(Watched, OverviewApp):
    pass


def _app(path: Path) -> WatchedOverview:
    return WatchedOverview(overview_job(job_view(path, None, lambda _: None)))


async def _open(path: Path) -> float:
    begun = time.perf_counter()
    app = _app(path)
    with patch.object(OverviewApp, "_find_path"):
        async with app.run_test(size=SIZE) as pilot:
            await pilot.pause()
            return app.displayed - begun


async def _keys(path: Path, repeats: int) -> dict[str, Sequence[float]]:
    app = _app(path)
    taken: dict[str, list[float]] = {key: [] for key in KEYS}
    async with app.run_test(size=SIZE):
        async with asyncio.timeout(300):
            while app.path is None:
                await asyncio.sleep(0.05)
        for _ in range(repeats):
            for key in KEYS:
                taken[key].append(await key_ms(app, key))
    return dict(taken)


async def _into(path: Path, repeats: int) -> list[float]:
    app = _app(path)
    taken = []
    with patch.object(OverviewApp, "_find_path"):
        async with app.run_test(size=SIZE) as pilot:
            for _ in range(repeats):
                begun = time.perf_counter()
                await pilot.press("down", "t")
                async with asyncio.timeout(120):
                    while not isinstance(app.screen, RankScreen):
                        await asyncio.sleep(0.005)
                taken.append(time.perf_counter() - begun)
                await pilot.press("escape")
    return taken
