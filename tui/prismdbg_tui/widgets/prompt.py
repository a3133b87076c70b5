"""The line for a search or a filter, there while one types."""

from __future__ import annotations

from textual import events
from textual.app import ComposeResult
from textual.containers import Horizontal
from textual.widgets import Input, Label

from prismdbg_tui.messages import PatternTyped, PromptLeft

_HINT = "all_reduce  dp  nan  failed  open  >1MiB  >5ms  12.3  train.py:61  -word"


class Prompt(Horizontal):
    def __init__(self) -> None:
        super().__init__(id="prompt")
        self._keeps = False
        self._label = Label("")
        self._line = Input(placeholder=_HINT, compact=True)

    def compose(self) -> ComposeResult:
        yield self._label
        yield self._line

    def ask(self, *, keeps: bool, text: str) -> None:
        self._keeps = keeps
        self._label.update("show only" if keeps else "search")
        self._line.value = text
        self.display = True
        self.screen.set_focus(self._line)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        self.display = False
        self.post_message(PatternTyped(event.value.strip(), keeps=self._keeps))

    def on_key(self, event: events.Key) -> None:
        if event.key == "escape":
            event.stop()
            self.display = False
            self.post_message(PromptLeft())
