"""Textual's driver for a browser, which also ends when nobody is at the other end any more.

Textual's own waits for ever once the server that started it is gone: its input has ended, and what it writes raises.
"""

from __future__ import annotations

import os
import threading
from functools import partial
from typing import Any

from textual.drivers.web_driver import WebDriver
from textual.messages import ExitApp

FILLED = "\x1b]7701;filled\x07"  # the page shows the screen once this has come; a terminal ignores it
LONGEST_END_S = 60.0  # a screen that is busy for ever ends as well; whoever it started ends with it


class EndingWebDriver(WebDriver):
    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._write = partial(self._write_while_read)

    def _write_while_read(self, data: bytes) -> int:
        """As `os.write`; what nobody reads any more is dropped."""
        try:
            return os.write(self.fileno, data)
        except BrokenPipeError:
            return len(data)

    def run_input_thread(self) -> None:
        super().run_input_thread()
        if not self.exit_event.is_set():
            self._app.post_message(ExitApp())
        last = threading.Timer(LONGEST_END_S, os._exit, (1,))
        last.daemon = True
        last.start()
