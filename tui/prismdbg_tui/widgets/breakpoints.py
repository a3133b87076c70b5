"""Breakpoints, watches and checkpoints of the session, in one list."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from rich.text import Text
from textual import events

from prismdbg.model.moment import Moment
from prismdbg.session.breakpoints import BreakpointSpec
from prismdbg_tui.drawing import figures
from prismdbg_tui.drawing.colors import color
from prismdbg_tui.drawing.value_drawing import short
from prismdbg_tui.session.messages import MomentChosen
from prismdbg_tui.session.views import Phase, State
from prismdbg_tui.widgets.pane import Pane


@dataclass(frozen=True, slots=True)
class Note:
    moment: Moment


class Breakpoints(Pane):
    def __init__(self) -> None:
        super().__init__("stops", "Breakpoints")
        self._state = State()
        self._notes: Mapping[Moment, str] = {}
        self._lines: list[object] = []  # what each line is about

    def show(self, state: State, notes: Mapping[Moment, str]) -> None:
        self._state, self._notes = state, notes
        self.again()

    def again(self) -> None:
        state = self._state
        self._lines = []
        text = Text(no_wrap=True, overflow="ellipsis")
        for stop in state.stops:
            self._line(text, self._stop(stop), stop)
        for watch in state.watches:
            changed = f"bold {color(self.app, 'accent')}" if watch.changed else ""
            shown = watch.error.split("\n", 1)[0] or (
                short(watch.value) if watch.value is not None else "not evaluated yet"
            )
            self._line(
                text,
                Text.assemble(
                    ("◉ ", color(self.app, "primary")),
                    (f"{watch.number:>2} ", "dim"),
                    (f"{figures.clean(watch.text)}  ", "bold"),
                    (figures.clean(shown), "dim" if watch.error else changed),
                ),
                watch,
            )
        for checkpoint in state.checkpoints:
            cost = (
                f"{figures.size(checkpoint.size_bytes)}, {checkpoint.cost_s:.1f} s"
                if checkpoint.number
                else "start moment"
            )
            self._line(
                text,
                Text.assemble(
                    ("◇ ", color(self.app, "success")),
                    (f"{checkpoint.number:>2} ", "dim"),
                    f"{checkpoint.moment}  ",
                    (cost, "dim"),
                ),
                checkpoint,
            )
        for moment, note in self._notes.items():
            line = Text.assemble(("⚑ ", color(self.app, "accent")), (f"{moment}  ", "bold"), figures.clean(note))
            self._line(text, line, Note(moment))
        is_starting = state.phase is Phase.STARTING
        if not self._lines:
            nothing = "no breakpoints, watch expressions, checkpoints or notes yet"
            text.append(
                "breakpoints and watch expressions are set once the rank is there" if is_starting else nothing, "dim"
            )
        text.rstrip()
        count = "" if is_starting else figures.plural(len(state.stops), "breakpoint")
        self.put(text, count, is_empty=not self._lines)

    def on_resize(self) -> None:
        self.again()

    def _line(self, text: Text, line: Text, about: object) -> None:
        text.append_text(line)
        text.append("\n")
        self._lines.append(about)

    def _stop(self, stop: BreakpointSpec) -> Text:
        hits = self._state.hits.get(stop.number, 0)
        standing = stop.number in self._state.hit_here
        notes = [figures.plural(hits, "hit")] if hits else []
        notes += [f"ignores {figures.plural(stop.ignore, 'hit')}"] if stop.ignore else []
        notes += ["once"] if stop.once else []
        notes += [f"logpoint: {figures.clean(stop.message)}" if stop.message else "logpoint"] if stop.log_only else []
        return Text.assemble(
            ("▶" if standing else "●", color(self.app, "accent" if standing else "error")),
            (f" {stop.number:>2} ", "dim"),
            (f"{figures.clean(stop.title)}  ", "bold"),
            (", ".join(notes), "dim"),
        )

    def on_click(self, event: events.Click) -> None:
        line = self.line_of(event)
        if 0 <= line < len(self._lines) and (moment := getattr(self._lines[line], "moment", None)) is not None:
            self.post_message(MomentChosen(moment))
