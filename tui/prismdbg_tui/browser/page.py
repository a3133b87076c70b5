"""What draws a page: the command. Where it fails before it has a screen, the page says why."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr
from typing import ClassVar, NoReturn

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.widgets import Static

from prismdbg.cli import main as command
from prismdbg.model.plain_text import plain
from prismdbg_tui.screens.pictured_app import PicturedApp


def main() -> NoReturn:
    try:
        with _said() as said:
            command.main()
    except SystemExit as ended:
        if ended.code and (text := said.getvalue()):
            Refusal(text).run()
        raise


@contextmanager
def _said() -> Iterator[io.StringIO]:
    """What the command says of itself, which then goes to its own place, too."""
    said, own = io.StringIO(), sys.stderr
    try:
        with redirect_stderr(said):
            yield said
    finally:
        own.write(said.getvalue())
        own.flush()


class Refusal(PicturedApp[None]):
    """`text`: why there is nothing else to show."""

    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[BindingType]] = [("q", "quit", "quit")]
    CSS = "#why { padding: 1 2; }"

    def __init__(self, text: str) -> None:
        super().__init__()
        self._text = plain(text).strip()

    def on_ready(self) -> None:
        self.filled()

    def action_help_quit(self) -> None:
        """Ctrl+C where nothing is selected."""
        self.notify("q quits", timeout=4)

    def compose(self) -> ComposeResult:
        yield Static(f"{self._text}\n\nThe way back to the other ranks is the browser's.", id="why", markup=False)
