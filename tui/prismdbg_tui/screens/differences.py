"""Two recordings compared, over the main screen."""

from __future__ import annotations

from collections.abc import Sequence

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Static

from prismdbg.model.moment import Moment
from prismdbg_tui.drawing import figures
from prismdbg_tui.drawing.colors import color


class Differences(ModalScreen[Moment | None]):
    """Ends with the moment to go to, or with none."""

    BINDINGS = [Binding("enter", "go", "go there"), Binding("escape,q", "dismiss", "close")]

    def __init__(self, title: str, lines: Sequence[str], equal: bool | None, moment: Moment | None) -> None:
        """`equal`: None where nothing could be compared, or not all of long logs."""
        super().__init__()
        self._equal = equal
        self._title = title
        self._lines = lines
        self._moment = moment

    def compose(self) -> ComposeResult:
        with VerticalScroll(id="sheet") as sheet:
            sheet.border_title = "Differences"
            sheet.border_subtitle = "enter goes there · esc closes" if self._moment is not None else "esc closes"
            yield Static(self._text())

    def on_mount(self) -> None:
        self.query_one("#sheet").focus()

    def action_go(self) -> None:
        self.dismiss(self._moment)

    def _text(self) -> Text:
        first, *rest = map(figures.clean, self._lines)
        ink = color(self.app, "warning" if self._equal is None else "success" if self._equal else "error")
        text = Text.assemble((f"{figures.clean(self._title)}\n\n", "dim"), (first, f"bold {ink}"))
        return text.append("".join(f"\n{line}" for line in rest))
