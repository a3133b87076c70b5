"""One line above the keys, there while one types: a search, a filter, a condition, a watch."""

from __future__ import annotations

from textual import events
from textual.app import ComposeResult
from textual.containers import Horizontal
from textual.widgets import Input, Label

from prismdbg_tui.session.messages import Asked, PromptLeft, Purpose

_PATTERN = "all_reduce  dp  nan  failed  open  >1MiB  >5ms  12.3  a.py:61  -word"
HINTS = {  # each fits beside its label in 80 columns
    Purpose.SEARCH: _PATTERN,
    Purpose.FILTER: _PATTERN,
    Purpose.CONDITION: "bytes > 1MiB and nan(out)   max(abs(input[0])) > 1e3   empty: always",
    Purpose.WATCH: "loss    out[0]    model.layers[3].weight    nan(model.head.weight)",
    Purpose.WHO: "a tensor: model.layers[3].weight    out[0]    loss",
    Purpose.COMPARE: "a CAPSULE, a RUN, or another rank: runs/good rank 1    rank 1",
    Purpose.NOTE: "a note on this moment, kept beside the capsule; empty: no note",
    Purpose.IGNORE: "how many of the next hits of this breakpoint to ignore: 10",
}


class _Line(Input):
    """Ends itself at enter and escape. A toolkit's binding would be heard only after keys that were typed ahead, which
    then stood in the line; they go to whatever has the focus after it."""

    def __init__(self) -> None:
        super().__init__(compact=True)
        self._is_open = False

    def open(self, text: str) -> None:
        self.value, self._is_open = text, True

    def on_key(self, event: events.Key) -> None:
        if self._is_open and event.key not in ("enter", "escape"):
            return
        event.stop()
        event.prevent_default()
        if not self._is_open:
            self.app.post_message(events.Key(event.key, event.character))
            return
        self._is_open = False
        self.post_message(self.Submitted(self, self.value) if event.key == "enter" else PromptLeft())


class Prompt(Horizontal):
    def __init__(self) -> None:
        super().__init__(id="prompt")
        self._purpose = Purpose.SEARCH
        self._label = Label("")
        self._line = _Line()

    def compose(self) -> ComposeResult:
        yield self._label
        yield self._line

    def ask(self, purpose: Purpose, text: str = "") -> None:
        self._purpose = purpose
        self._label.update(str(purpose))
        self._line.placeholder = HINTS[purpose]
        self._line.open(text)
        self.display = True
        self.screen.set_focus(self._line)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        self.display = False
        self.post_message(Asked(self._purpose, event.value.strip()))

    def on_prompt_left(self) -> None:
        self.display = False
