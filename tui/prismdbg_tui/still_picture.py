"""A picture of the first screen, for a file: drawn without a terminal and without keys."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from textual.pilot import Pilot

from prismdbg.capsule.new_file import by_suffix, check_new, new_file
from prismdbg.errors import FacilityError, WaitTimeout
from prismdbg.render import console
from prismdbg_tui.screens.pictured_app import PicturedApp

Returned = TypeVar("Returned")
Say = Callable[[str], None]

_QUIET_S, _LOOK_S = 0.5, 0.05
_RSVG = "rsvg-convert"
_PNG_ZOOM = 2
_PNG_BOUND_S = 120.0


@dataclass(frozen=True, slots=True)
class StillPicture:
    """`size`: columns and lines of the terminal that is drawn; title: of its window."""

    path: Path
    size: tuple[int, int]
    title: str

    def require(self) -> None:
        """Before anything runs for it: `UsageError` where no such file can be made, `FacilityError` where the program
        for it is missing."""
        by_suffix(self.path, _WRITERS)
        check_new(self.path)
        if self.path.suffix == ".png" and shutil.which(_RSVG) is None:
            hint = "install librsvg2-bin, or choose a name that ends in .svg"
            raise FacilityError(f"a .png is drawn by {_RSVG}, which this machine lacks", hint=hint)

    def take(self, app: PicturedApp[Returned], bound_s: float) -> None:
        """Runs `app` until its screen is settled. Raises what left it nothing to show. `bound_s`: as in `settled`."""
        with new_file(self.path) as partial:
            drawn = asyncio.run(self._drawn(app, bound_s))
            by_suffix(self.path, _WRITERS)(partial, drawn)
        columns, lines = self.size
        console.say(", ".join(filter(None, (f"{self.path}: {columns}x{lines}", app.standing))))

    async def _drawn(self, app: PicturedApp[Returned], bound_s: float) -> str:
        async with app.run_test(size=self.size, notifications=True) as pilot:
            await settled(app, pilot, bound_s, console.announce)
            return app.export_screenshot(title=self.title)


async def settled(
    app: PicturedApp[Returned], pilot: Pilot[Returned], bound_s: float, say: Say = lambda _: None
) -> None:
    """Until nothing is still to come, and for a while nothing came. `say`: what takes its time; `bound_s`: how long it
    may be the same, then `WaitTimeout`."""
    quiet_s, said, since_s = 0.0, "", time.monotonic()
    while quiet_s < _QUIET_S:
        await pilot.pause(_LOOK_S)
        if app.fatal is not None:
            raise app.fatal
        quiet_s = quiet_s + _LOOK_S if app.is_settled else 0.0
        if app.doing not in ("", said):
            said, since_s = app.doing, time.monotonic()
            say(said)
        if time.monotonic() - since_s > bound_s:
            hint = "give more time with --timeout, or open the screen to see what it waits for"
            raise WaitTimeout(f"the screen was not complete after {bound_s:g} s: {said or 'reading'}", hint=hint)


def _write_svg(path: Path, drawn: str) -> None:
    path.write_text(drawn, "utf-8")


def _write_png(path: Path, drawn: str) -> None:
    command = [_RSVG, f"--zoom={_PNG_ZOOM}", "--format=png"]
    try:
        done = subprocess.run(command, input=drawn.encode(), capture_output=True, timeout=_PNG_BOUND_S, check=True)
    except (subprocess.SubprocessError, OSError) as error:
        why = " ".join((getattr(error, "stderr", None) or str(error).encode()).decode("utf-8", "replace").split())
        raise FacilityError(f"{_RSVG} failed: {why}", hint="choose a name that ends in .svg") from error
    path.write_bytes(done.stdout)


_WRITERS: dict[str, Callable[[Path, str], None]] = {".svg": _write_svg, ".png": _write_png}
