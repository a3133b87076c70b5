"""One finding with its traceback, over the screen of a recorded job."""

from __future__ import annotations

from collections.abc import Mapping

from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Static

from prismdbg.diagnosis.verdict import Verdict
from prismdbg_tui.recorded_job import words
from prismdbg_tui.screens.help import TWO_COLUMNS

_BESIDE = 2  # cells: a scrollbar and its gap


class WholeFinding(ModalScreen[None]):
    BINDINGS = [Binding("escape,q", "dismiss", "close")]

    def __init__(self, verdict: Verdict, colors: Mapping[str, str]) -> None:
        super().__init__()
        self._verdict, self._colors = verdict, dict(colors)
        self._text = Static("")

    def compose(self) -> ComposeResult:
        with VerticalScroll(id="sheet") as sheet:
            sheet.border_title = "Finding"
            sheet.border_subtitle = "esc closes"
            yield self._text

    def on_mount(self) -> None:
        self.query_one("#sheet").focus()
        self.on_resize()

    def on_resize(self) -> None:
        """Where there is little room the sheet fills the screen."""
        self.set_class(self.app.size.width < TWO_COLUMNS, "-one")
        self.call_after_refresh(self._draw)

    def _draw(self) -> None:
        width = self.query_one("#sheet").content_size.width - _BESIDE
        self._text.update(words.whole_finding(self._verdict, self._colors, max(width, 1)))
