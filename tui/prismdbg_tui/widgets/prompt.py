"""The line for a search or a filter, there while one types."""

from __future__ import annotations

from textual import events
from textual.app import ComposeResult
from textual.containers import Horizontal
from textual.widgets import Input, Label

from prismdbg_tui.messages import PatternTyped, PromptLeft


class Prompt(Horizontal):
    def __init__(self) -> None:
        super().__init__(id="prompt")
        self._keeps = False

    def compose(self) -> ComposeResult:
        yield Label("")
        yield Input(
            placeholder="all_reduce  dp  nan  failed  open  >1MiB  >5ms  12.3  train.py:61  -word", compact=True
        )

    def ask(self, *, keeps: bool, text: str) -> None:
        self._keeps = keeps
        self.query_one(Label).update("show only" if keeps else "search")
        line = self.query_one(Input)
        line.value = text
        self.display = True
        line.focus()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        self.display = False
        self.post_message(PatternTyped(event.value.strip(), keeps=self._keeps))

    def on_key(self, event: events.Key) -> None:
        if event.key == "escape":
            event.stop()
            self.display = False
            self.post_message(PromptLeft())
