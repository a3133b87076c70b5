"""The line above the keys: what runs and how long, the last error, what a search found, or why the rank is there."""

from __future__ import annotations

import time

from rich.text import Text
from textual.widgets import Static

from prismdbg.diagnosis.verdict import without_folders
from prismdbg.model.breakpoints import ON_THE_WAY
from prismdbg.render.stop_text import reason_text
from prismdbg.session.line import Verb
from prismdbg_tui.drawing import figures
from prismdbg_tui.drawing.colors import color
from prismdbg_tui.session.views import BUSY, Phase, State

_BAR = 12  # cells
_SPIN = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"


class StatusLine(Static):
    def __init__(self, not_replayable: str, told: str) -> None:
        """`not_replayable`: why nothing can run; told: what led to this screen, until something is asked for."""
        super().__init__("", id="status")
        self._state = State()
        self._error, self._told = "", told
        self._looking = not_replayable or "`prismdbg debug` runs the rank"

    def on_mount(self) -> None:
        self.set_interval(0.12, self._spin)

    def show(self, state: State) -> None:
        self._state = state
        self.again()

    def fail(self, error: str) -> None:
        """It stays until something else could be done; `error` is empty where something is asked for."""
        self._error, self._told = error, ""
        self.again()

    def forget_error(self) -> None:
        """Something else was done."""
        if self._error:
            self._error = ""
            self.again()

    def again(self) -> None:
        self.update(self._text())

    def _spin(self) -> None:
        if self._state.phase in BUSY:
            self.again()

    def _text(self) -> Text:
        text = Text(" ", no_wrap=True, overflow="ellipsis")
        if self._state.phase in BUSY:
            return text.append_text(self._doing())
        if self._state.phase is Phase.LOST:
            return text.append(f"✕ the rank is lost: {_line(self._state.lost_because)}", color(self.app, "error"))
        if self._error:
            return text.append(f"✕ {_line(self._error)}", color(self.app, "error"))
        return text.append(" · ".join(filter(None, (_line(self._standing()), _line(self._told)))), "dim")

    def _doing(self) -> Text:
        state, since_s = self._state, time.monotonic() - self._state.since_s
        turn = _SPIN[int(time.monotonic() * 8) % len(_SPIN)]
        what = _line(state.doing or str(state.phase))
        text = Text.assemble((f"{turn} {since_s:.0f} s  ", f"bold {color(self.app, 'warning')}"), what, self._share())
        return text.append_text(Text.assemble(("   esc", f"bold {color(self.app, 'accent')}"), (" cancels it", "dim")))

    def _share(self) -> str:
        """How far it came, where that is known."""
        state = self._state
        if not state.total:
            return ""
        share = min(state.done / state.total, 1.0)
        full = round(share * _BAR * 8)
        bar = "█" * (full // 8) + ("▏▎▍▌▋▊▉"[full % 8 - 1] if full % 8 else "")
        return f"  ▕{bar:<{_BAR}}▏ {share:.0%}"

    def _standing(self) -> str:
        """Why it stands there, where that is not simply what was asked for."""
        state = self._state
        if state.phase is Phase.LOOKING:
            return "" if self._told else f"read-only view of the recording; {self._looking}"
        if state.story or state.found:
            return without_folders(state.story or state.found)
        if state.phase is Phase.HUNG:
            return state.reason
        if state.hit_here:
            return f"stopped at {state.why}"
        if state.reason in (*Verb, *ON_THE_WAY):
            return f"stopped at {state.moment}"
        text = reason_text(state.reason)
        return f"stopped at {state.moment}: {text}" if text != state.reason else text


def _line(text: str) -> str:
    """The first line of it; of a traceback the exception."""
    first, *more = figures.clean(text).strip().split("\n")
    raised = [line for line in more if line.strip() and not line.startswith(" ")]
    return raised[0] if first.startswith("Traceback ") and raised else first
