"""The session's verbs typed in, and what they answer."""

from __future__ import annotations

from textual import events
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.suggester import Suggester
from textual.widgets import Input

from prismdbg.session.line import MAX_LINE, VERBS
from prismdbg_tui.session.messages import LineTyped
from prismdbg_tui.widgets.text_log import TextLog

MAX_HISTORY = 500


class Completion(Suggester):
    """A verb; and after a verb, what was typed after it before, or a name of the frame."""

    def __init__(self) -> None:
        super().__init__(use_cache=False, case_sensitive=True)
        self.names: tuple[str, ...] = ()
        self.history: list[str] = []

    async def get_suggestion(self, value: str) -> str | None:
        for line in reversed(self.history):
            if line.startswith(value) and line != value and " " in value:
                return line
        head, space, word = value.rpartition(" ")
        known = self.names if space else tuple(VERBS)
        found = next((name for name in known if word and name.startswith(word) and name != word), None)
        return f"{head}{space}{found}" if found is not None else None


_ASKS = "type a command (help lists them), esc leaves"
_ASKS_MEANWHILE = "type a command for later; esc cancels what runs, then leaves"


class Line(Input, can_focus=False):
    """One line with history; tab takes the suggestion. Only `begin` and the mouse give it the keys: else it
    would take them from a pane that is hidden."""

    def __init__(self, key: str) -> None:
        """`key`: leads here."""
        self.completion = Completion()
        self._invites = f"{key} begins a command (help lists them)"
        self._asks = _ASKS
        super().__init__(
            placeholder=self._invites,
            suggester=self.completion,
            id="line",
            compact=True,
            select_on_focus=False,
        )
        self._back = 0

    def meanwhile(self, runs: bool) -> None:
        """Something runs, which the key that leaves cancels first."""
        self._asks = _ASKS_MEANWHILE if runs else _ASKS
        if self.has_focus:
            self.placeholder = self._asks

    def begin(self) -> None:
        self.can_focus = True
        self.screen.set_focus(self)

    def on_focus(self) -> None:
        self.placeholder = self._asks

    def on_blur(self) -> None:
        self.placeholder = self._invites  # what is typed now is no line: each letter is a key
        if self.app.app_focus:  # else the terminal is left, and comes back here
            self.can_focus = False

    def on_mouse_down(self) -> None:
        self.begin()

    def remember(self, text: str) -> None:
        history = self.completion.history
        if 0 < len(text) <= MAX_LINE and (not history or history[-1] != text):
            history.append(text)
            del history[:-MAX_HISTORY]
        self._back = 0

    def on_key(self, event: events.Key) -> None:
        if event.key == "enter":  # at once: a binding would be heard after keys that were typed ahead
            event.stop()
            event.prevent_default()
            self.post_message(self.Submitted(self, self.value))
            self.value = ""
        elif event.key == "tab" and self._suggestion:
            event.stop()
            event.prevent_default()
            self.value = f"{self._suggestion} " if " " not in self._suggestion else self._suggestion
            self.cursor_position = len(self.value)
        elif event.key in ("up", "down") and self.completion.history:
            event.stop()
            event.prevent_default()
            self._recall(1 if event.key == "up" else -1)

    def _recall(self, by: int) -> None:
        self._back = min(max(self._back + by, 0), len(self.completion.history))
        self.value = self.completion.history[-self._back] if self._back else ""
        self.cursor_position = len(self.value)


class Console(Vertical):
    """The log above, the line below."""

    def __init__(self, key: str) -> None:
        """`key`: gives the line the keys."""
        super().__init__(id="console", classes="pane")
        self.border_title = "Console"
        self.log_pane = TextLog("answers")
        self.line = Line(key)

    def compose(self) -> ComposeResult:
        yield self.log_pane
        yield self.line

    def say(self, text: str, kind: str) -> None:
        self.log_pane.say(text, kind)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        text = event.value.strip().removeprefix(":").lstrip()  # the key that leads here, typed again
        self.line.remember(text)
        self.post_message(LineTyped(text))
