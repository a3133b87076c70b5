"""What all screens have in common: they can be drawn without a terminal, once nothing on them is still to come, and
write nothing that steers one, or them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar

from textual.app import App
from textual.filter import LineFilter
from textual.notifications import SeverityLevel

from prismdbg.capsule.partial import partial_file
from prismdbg.errors import PrismError
from prismdbg_tui.browser.driver import FILLED
from prismdbg_tui.drawing.picture import screenshot
from prismdbg_tui.drawing.printable import Printable
from prismdbg_tui.screens.daemon_threads import DaemonThreads

Returned = TypeVar("Returned")
_PRINTABLE = Printable()


class PicturedApp(App[Returned]):
    """`fatal`: the error after which there is nothing to show."""

    fatal: PrismError | None = None
    CSS = "ToastRack { margin-bottom: 2; overflow-y: hidden; }"  # above the status line and the key bar

    async def run_async(self, **given: Any) -> Returned | None:
        asyncio.get_running_loop().set_default_executor(DaemonThreads())
        return await super().run_async(**given)

    def get_line_filters(self) -> Sequence[LineFilter]:
        return [*super().get_line_filters(), _PRINTABLE]

    def notify(
        self,
        message: str,
        *,
        title: str = "",
        severity: SeverityLevel = "information",
        timeout: float | None = None,
        markup: bool = False,
    ) -> None:
        """As it is written: much of it comes from a capsule, where a text may look like the toolkit's markup. None of
        it is read as that, whatever a caller says. What is on the screen already is not said once more."""
        del markup
        if any((shown.message, shown.title) == (message, title) for shown in self._notifications):
            return
        super().notify(message, title=title, severity=severity, timeout=timeout, markup=False)

    @property
    def is_settled(self) -> bool:
        """What was begun has ended."""
        return all(worker.is_finished for worker in self.workers)

    def filled(self) -> None:
        """Once what is on the screen is drawn: a page in a browser appears."""
        if self.is_web:
            self.call_after_refresh(self._tell_page)

    def _tell_page(self) -> None:
        if self._driver is not None:
            self._driver.write(FILLED)

    @property
    def doing(self) -> str:
        """What takes its time; empty where nothing of it is known."""
        return ""

    @property
    def standing(self) -> str:
        """Where the rank is; empty where none runs."""
        return ""

    def export_screenshot(self, *, title: str | None = None, simplify: bool = False) -> str:
        """Also what the palette's "Save screenshot" writes."""
        return screenshot(self, title, simplify=simplify)

    def deliver_screenshot(
        self, filename: str | None = None, path: str | None = None, time_format: str | None = None
    ) -> str | None:
        """Into the working directory, or to the browser; what goes wrong is said. The toolkit looks for a folder of
        downloads, which a server has not."""
        if self.is_web:
            return super().deliver_screenshot(filename, path, time_format)
        target = Path(path or ".") / (filename or f"prismdbg-{datetime.now():%Y%m%d-%H%M%S}.svg")
        try:
            with partial_file(target) as partial:
                partial.file.write(self.export_screenshot().encode())
                partial.publish(target)
        except (OSError, PrismError) as error:
            why = f"{target}: {error.strerror}" if isinstance(error, OSError) else error
            self.refuse(f"the screenshot cannot be written: {why}")
            return None
        self.notify(f"saved {target.absolute()}", timeout=6)
        return None

    def refuse(self, text: str, seconds: float = 4) -> None:
        """Says why something was not done."""
        self.notify(text, severity="warning", timeout=seconds)
