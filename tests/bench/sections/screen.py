"""The screen over a capsule of a million collectives: how long until it is there, and what a key costs."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from pathlib import Path
from unittest.mock import patch

from prismdbg_tui.session import cursor_views
from prismdbg_tui.session.app import PrismApp

from prismdbg.capsule.capsule_dir import Capsule
from tests.bench.large_capsule import make_large_capsule
from tests.bench.repaints import SIZE, Watched, key_ms
from tests.bench.settings import Settings
from tests.bench.table import Measured, Row

TITLE = "The screen over a million collectives"
RESTS_S = 5.0  # so that what follows a cursor at rest is not measured with the key
OPEN_GOAL_S, KEY_GOAL_MS = 2.0, 50.0
KEYS = {
    "down": "cursor down",
    "pagedown": "page down",
    "j": "next collective",
    "G": "to the last",
    "g": "to the first",
    "full_stop": "next hit of 103,093",
    "shift+right": "timeline, a quarter on",
    "plus": "timeline, zoom in",
    "minus": "timeline, zoom out",
}


def measure(settings: Settings, folder: Path) -> Measured:
    count, repeats = (1_000_000, 15) if settings.rounds > 5 else (50_000, 3)
    capsule = make_large_capsule(folder / "large", count)
    opened = [asyncio.run(_open(capsule)) for _ in range(max(repeats // 3, 2))]
    with patch.object(cursor_views, "LOOK_AFTER_S", RESTS_S):
        keys = asyncio.run(_keys(capsule, repeats))
    rows = [Row(what=f"open, {count:,} collectives", values=opened, unit="s", goal=OPEN_GOAL_S, digits=2)]
    rows += [
        Row(what=f"key: {KEYS[key]}", values=values, unit="ms", goal=KEY_GOAL_MS, digits=1)
        for key, values in keys.items()
    ]

    return Measured(
        rows=rows,
        notes=[
            "A key's time ends with the last repaint it causes. Source, stack, values and peers of a row follow once "
            f"the cursor has rested for {cursor_views.LOOK_AFTER_S * 1000:.0f} ms; no key waits for them.",
        ],
    )


async def _open(capsule: Capsule) -> float:
    """From the application's start until the table and the timeline show the log."""
    begun = time.perf_counter()
    screen = PrismApp(capsule, "large")
    async with screen.run_test(size=SIZE):
        await _shown(screen)
        return time.perf_counter() - begun


async def _shown(screen: PrismApp) -> None:
    async with asyncio.timeout(120):
        while screen.recording is None or not screen.panes.collectives.count:
            await asyncio.sleep(0.005)


class WatchedScreen(Watched, PrismApp):
    pass


async def _keys(capsule: Capsule, repeats: int) -> dict[str, Sequence[float]]:
    screen = WatchedScreen(capsule, "large")
    taken: dict[str, list[float]] = {key: [] for key in KEYS}
    async with screen.run_test(size=SIZE) as pilot:
        await _shown(screen)
        await pilot.press("slash", *"all_reduce", "enter")
        await pilot.pause()
        for key in KEYS:
            for _ in range(repeats):
                if key == "g":
                    await pilot.press("G")
                taken[key].append(await key_ms(screen, key))
    return dict(taken)
