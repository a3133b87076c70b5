"""The screen over a capsule of a million collectives: how long until it is there, and what a key costs."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from pathlib import Path

from prismdbg_tui.app import PrismApp

from prismdbg.capsule.capsule_dir import Capsule
from tests.bench.large_capsule import make_large_capsule
from tests.bench.settings import Settings
from tests.bench.table import Measured, Row

TITLE = "The screen over a million collectives"
SIZE = (160, 45)
OPEN_GOAL_S, KEY_GOAL_MS = 2.0, 50.0
KEYS = {
    "down": "cursor down",
    "pagedown": "page down",
    "j": "next collective",
    "G": "to the last",
    "g": "to the first",
    "full_stop": "next hit of 103,093",
    "shift+right": "time line, a quarter on",
    "plus": "time line, zoom in",
    "minus": "time line, zoom out",
}


def measure(settings: Settings, folder: Path) -> Measured:
    count, repeats = (1_000_000, 15) if settings.rounds > 5 else (50_000, 3)
    capsule = make_large_capsule(folder / "large", count)
    opened = [asyncio.run(_open(capsule)) for _ in range(max(repeats // 3, 2))]
    keys = asyncio.run(_keys(capsule, repeats))
    rows = [Row(what=f"open, {count:,} collectives", values=opened, unit="s", goal=OPEN_GOAL_S, digits=2)]
    rows += [
        Row(what=f"key: {KEYS[key]}", values=values, unit="ms", goal=KEY_GOAL_MS, digits=1)
        for key, values in keys.items()
    ]

    return Measured(
        rows=rows,
        notes=[
            "A key's time ends when its last repaint is done and nothing is left to do.",
        ],
    )


async def _open(capsule: Capsule) -> float:
    """From the application's start until the table and the time line show the log."""
    begun = time.perf_counter()
    app = PrismApp(capsule, "large")
    async with app.run_test(size=SIZE):
        await _shown(app)
        return time.perf_counter() - begun


async def _shown(app: PrismApp) -> None:
    async with asyncio.timeout(120):
        while app.recording is None or not app.collectives.count:
            await asyncio.sleep(0.005)


async def _keys(capsule: Capsule, repeats: int) -> dict[str, Sequence[float]]:
    app = PrismApp(capsule, "large")
    taken: dict[str, list[float]] = {key: [] for key in KEYS}
    async with app.run_test(size=SIZE) as pilot:
        await _shown(app)
        await pilot.press("slash", *"all_reduce", "enter")
        await pilot.pause()
        for key in KEYS:
            for _ in range(repeats):
                begun = time.perf_counter()
                await pilot.press(key)
                taken[key].append((time.perf_counter() - begun) * 1000)
    return dict(taken)
