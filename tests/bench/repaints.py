"""What a key costs a Textual application: the time until the last repaint that it causes."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from textual.app import App

SIZE = (160, 45)
QUIET_S = 0.12


class Watched(App[Any]):
    """Knows when it was last on the screen. To be put in front of the application's class."""

    displayed = 0.0

    def post_display_hook(self) -> None:
        self.displayed = time.perf_counter()


async def key_ms(app: Watched, key: str) -> float:
    """Milliseconds; quiet afterwards says that the repaint was the last."""
    begun = time.perf_counter()
    app.simulate_key(key)
    while app.displayed < begun or time.perf_counter() - app.displayed < QUIET_S:
        await asyncio.sleep(QUIET_S / 4)
    return (app.displayed - begun) * 1000
