"""The uppermost line: which capsule, what the rank does, and where it is."""

from __future__ import annotations

import time

from rich.text import Text
from textual.widgets import Static

from prismdbg.capsule.manifest import Manifest
from prismdbg.model.breakpoints import ON_THE_WAY
from prismdbg.session.line import Verb
from prismdbg_tui.drawing import figures
from prismdbg_tui.drawing.colors import color
from prismdbg_tui.session.views import Phase, State

_BAR = 12  # cells
_SPIN = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
_COLORS = {
    Phase.LOOKING: "primary",
    Phase.STARTING: "warning",
    Phase.RUNNING: "warning",
    Phase.STOPPED: "success",
    Phase.FINISHED: "primary",
    Phase.LOST: "error",
}
_BUSY = (Phase.STARTING, Phase.RUNNING)


class Header(Static):
    def __init__(self, name: str, manifest: Manifest) -> None:
        super().__init__("", id="header")
        self._capsule = name
        self._manifest = manifest
        self._state = State()

    def on_mount(self) -> None:
        self.set_interval(0.12, self._spin)
        self.show(self._state)

    def show(self, state: State) -> None:
        self._state = state
        self.update(self._text())

    def _spin(self) -> None:
        if self._state.phase in _BUSY:
            self.update(self._text())

    def _text(self) -> Text:
        state = self._state
        phase = color(self.app, _COLORS[state.phase])
        text = Text(no_wrap=True, overflow="ellipsis")
        text.append(" ◣ prismdbg ", f"bold {color(self.app, 'accent')}")
        text.append(f" {self._chip()} ", f"bold reverse {phase}")
        text.append(f"  {self._where()}")
        text.append(f"   {figures.clean(self._capsule)}", "bold")
        text.append(f" · rank {self._manifest.rank} of {self._manifest.world_size}", "dim")
        if self._manifest.emulated:
            text.append(" · emulated, peers synthesized", color(self.app, "warning"))
        text.append(f" · {figures.clean(self._manifest.incident.text)}", "dim")
        return text

    def _chip(self) -> str:
        if self._state.phase not in _BUSY:
            return str(self._state.phase)
        turn = _SPIN[int(time.monotonic() * 8) % len(_SPIN)]
        return f"{turn} {self._state.phase} {time.monotonic() - self._state.since_s:.0f} s"

    def _why(self) -> str:
        """Why it stands there, where that is not simply what one asked for."""
        if self._state.hit_here:
            return figures.clean(self._state.why)
        return "" if self._state.reason in (*Verb, *ON_THE_WAY) else self._state.reason

    def _share(self) -> str:
        """How far it came, where that is known."""
        state = self._state
        if not state.total:
            return ""
        share = min(state.done / state.total, 1.0)
        full = round(share * _BAR * 8)
        bar = "█" * (full // 8) + ("▏▎▍▌▋▊▉"[full % 8 - 1] if full % 8 else "")
        return f"  ▕{bar:<{_BAR}}▏ {share:.0%}"

    def _where(self) -> str:
        state = self._state
        match state.phase:
            case Phase.LOOKING:
                return f"{self._manifest.moment_a} to {self._manifest.moment_b}"
            case Phase.STARTING:
                return state.doing
            case Phase.RUNNING if state.doing:
                return f"{state.doing}{self._share()}   esc cancels it"
            case Phase.LOST:
                return figures.clean(state.lost_because)
            case _:
                where = f"{state.moment} {self._why()}".strip()
                return f"{where} · {state.runtime}" if state.runtime else where
