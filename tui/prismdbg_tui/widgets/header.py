"""The uppermost line: which capsule, whether its rank runs, and where it is."""

from __future__ import annotations

from rich.text import Text
from textual.widgets import Static

from prismdbg.capsule.manifest import Manifest
from prismdbg_tui.drawing import figures
from prismdbg_tui.drawing.colors import color
from prismdbg_tui.session.views import Phase, State

_COLORS = {
    Phase.LOOKING: "primary",
    Phase.STARTING: "warning",
    Phase.RUNNING: "warning",
    Phase.RUNS_ON: "warning",
    Phase.STOPPED: "success",
    Phase.FINISHED: "primary",
    Phase.LOST: "error",
    Phase.HUNG: "warning",
}


class Header(Static):
    def __init__(self, name: str, manifest: Manifest) -> None:
        super().__init__("", id="header")
        self._capsule = name
        self._manifest = manifest
        self._state = State()

    def on_mount(self) -> None:
        self.show(self._state)

    def show(self, state: State) -> None:
        self._state = state
        self.update(self._text(), layout=False)

    def on_resize(self) -> None:
        self.show(self._state)

    def _text(self) -> Text:
        """Where there is little room, less is said of peers, then of the job, then of us."""
        of, emulated = f" of {self._manifest.world_size}", self._manifest.emulated
        notes = (" · emulated, peers synthesized", " · emulated") if emulated else ("",)
        tried = [(" ◣ prismdbg ", of, note) for note in notes]
        tried += [(" ◣ prismdbg ", "", notes[-1]), (" ◣ ", "", notes[-1])]
        for parts in tried:
            text = self._with(*parts)
            if text.cell_len <= (self.size.width or text.cell_len):  # 0 until it is laid out
                break
        return text

    def _with(self, brand: str, of: str, note: str) -> Text:
        state = self._state
        phase = color(self.app, "warning" if state.is_cancelled else _COLORS[state.phase])
        text = Text(no_wrap=True, overflow="ellipsis")
        text.append(brand, f"bold {color(self.app, 'accent')}")
        text.append(f" {'cancelled' if state.is_cancelled else state.phase} ", f"bold reverse {phase}")
        if where := self._where():
            text.append(f"  {where}")
        text.append(f"   {figures.clean(self._capsule)}", "bold")
        text.append(f" · rank {self._manifest.rank}{of}", "dim")
        return text.append(note, color(self.app, "warning") if note else "")

    def _where(self) -> str:
        state = self._state
        if state.phase is Phase.LOOKING:
            return f"{self._manifest.moment_a} to {self._manifest.moment_b}"
        return f"{state.moment} · {state.runtime}" if state.runtime else ""
