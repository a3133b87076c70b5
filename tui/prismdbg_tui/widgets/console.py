"""The session's verbs typed in, and what they answer; and the rank's own output."""

from __future__ import annotations

from textual import events
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.suggester import SuggestFromList
from textual.widgets import Input

from prismdbg.session.line import VERBS
from prismdbg_tui.messages import LineTyped
from prismdbg_tui.widgets.text_log import TextLog

MAX_UNENDED = 4096
MAX_HISTORY = 500


class Line(Input):
    """One line with history; tab takes the suggestion."""

    def __init__(self) -> None:
        verbs = [*VERBS]
        super().__init__(
            placeholder="a command: help lists them",
            suggester=SuggestFromList(verbs, case_sensitive=True),
            id="line",
            compact=True,
            select_on_focus=False,
        )
        self._history: list[str] = []
        self._back = 0

    def remember(self, text: str) -> None:
        if text and (not self._history or self._history[-1] != text):
            self._history = [*self._history, text][-MAX_HISTORY:]
        self._back = 0

    def on_key(self, event: events.Key) -> None:
        if event.key == "tab" and self._suggestion:
            event.stop()
            event.prevent_default()
            self.value = f"{self._suggestion} "
            self.cursor_position = len(self.value)
        elif event.key in ("up", "down") and self._history:
            event.stop()
            event.prevent_default()
            self._recall(1 if event.key == "up" else -1)

    def _recall(self, by: int) -> None:
        self._back = min(max(self._back + by, 0), len(self._history))
        self.value = self._history[-self._back] if self._back else ""
        self.cursor_position = len(self.value)


class Console(Vertical):
    """The log above, the line below."""

    def __init__(self) -> None:
        super().__init__(id="console", classes="pane")
        self.border_title = "Console"
        self.log_pane = TextLog("answers")
        self.line = Line()

    def compose(self) -> ComposeResult:
        yield self.log_pane
        yield self.line

    def say(self, text: str, kind: str) -> None:
        self.log_pane.say(text, kind)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        text = self.line.value.strip()
        self.line.remember(text)
        self.line.value = ""
        self.post_message(LineTyped(text))


class Output(TextLog, can_focus=True):
    """What the rank prints."""

    def __init__(self) -> None:
        super().__init__("output", classes="pane")
        self.border_title = "Output of the rank"
        self._rest = ""

    def add(self, text: str) -> None:
        """Whole lines; the rest waits for its end."""
        *lines, self._rest = (self._rest + text).split("\n")
        if len(self._rest) > MAX_UNENDED:
            lines, self._rest = [*lines, self._rest], ""
        for line in lines:
            self.say(line.rstrip("\r"))
