"""All widgets of the screen, and what each of them is given. Decides nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.widget import Widget

from prismdbg.capsule.manifest import Manifest
from prismdbg.model.moment import Moment
from prismdbg.session.breakpoints import BreakpointSpec
from prismdbg.session.frames import own_names
from prismdbg_tui.session import messages
from prismdbg_tui.session.breakpoint_rows import rows_of_breakpoint
from prismdbg_tui.session.cursor import CursorPosition, Ints
from prismdbg_tui.session.verdicts import Verdicts
from prismdbg_tui.session.views import State
from prismdbg_tui.session.visible_panes import TITLES, behind, key_of, numbered, panes
from prismdbg_tui.timeline.recording import Recording
from prismdbg_tui.widgets.breakpoints import Breakpoints
from prismdbg_tui.widgets.collectives import Collectives
from prismdbg_tui.widgets.console import Console
from prismdbg_tui.widgets.header import Header
from prismdbg_tui.widgets.incident_line import IncidentLine
from prismdbg_tui.widgets.key_bar import KeyBar
from prismdbg_tui.widgets.memory import Memory
from prismdbg_tui.widgets.output import Output
from prismdbg_tui.widgets.peers import Peers
from prismdbg_tui.widgets.prompt import Prompt
from prismdbg_tui.widgets.source import Source
from prismdbg_tui.widgets.stack import Stack
from prismdbg_tui.widgets.status_line import StatusLine
from prismdbg_tui.widgets.tabs import Tabs
from prismdbg_tui.widgets.timeline import Timeline
from prismdbg_tui.widgets.values import Values


class Panes:
    def __init__(
        self,
        name: str,
        manifest: Manifest,
        keys: Mapping[str, str],
        *,
        live: bool,
        queued: Callable[[], Sequence[str]],
        told: Sequence[str] = (),
    ) -> None:
        self.header, self.incident = Header(name, manifest), IncidentLine(manifest.incident)
        self.timeline, self.collectives, self.memory = Timeline(), Collectives(), Memory(keys["memory_mark"])
        self.source, self.stack, self.values = Source(), Stack(), Values()
        self.peers, self.stops = Peers(), Breakpoints()
        self.console, self.output = Console(keys["command"]), Output()
        self.prompt, self.tabs = Prompt(), Tabs(live=live)
        self.status = StatusLine(manifest.not_replayable, "".join(told[-1:]), keys, queued)
        self.keys = KeyBar(keys, live=live)
        self._there = panes(live=live)
        for pane, widget in self._all.items():
            widget.border_title = numbered(pane, TITLES[pane])
        self._stop_rows: dict[BreakpointSpec, Ints] = {}

    def compose(self) -> ComposeResult:
        yield self.header
        yield self.incident
        yield self.timeline
        yield self.tabs
        with Horizontal(id="body"):
            with Vertical(id="left"):
                yield self.collectives
                yield self.memory
                with Horizontal(id="talk"):
                    yield self.console
                    yield self.output
            with Vertical(id="right"):
                yield self.source
                yield self.stack
                yield self.values
                with Horizontal(id="foot"):
                    yield self.peers
                    yield self.stops
        yield self.prompt
        yield self.status
        yield self.keys

    def focus_of(self, pane: str) -> Widget:
        """What takes the keys when a pane is chosen."""
        inner: dict[str, Widget] = {"console": self.console.log_pane, "memory": self.memory.inner}
        return inner.get(pane, self._all[pane])

    def name_places(self, shown: Sequence[str]) -> None:
        """A pane that hides another one names it."""
        for pane, widget in self._all.items():
            if other := behind(pane):
                hides = pane in shown and other not in shown and other in self._there
                behind_it = (f" · {key_of(other)} {TITLES[other]}", "dim") if hides else ""
                widget.border_title = Content.assemble(numbered(pane, TITLES[pane]), behind_it)

    @property
    def _all(self) -> dict[str, Widget]:
        return {
            "timeline": self.timeline,
            "collectives": self.collectives,
            "memory": self.memory,
            "source": self.source,
            "stack": self.stack,
            "values": self.values,
            "peers": self.peers,
            "stops": self.stops,
            "console": self.console,
            "output": self.output,
        }

    def show_recording(self, recording: Recording) -> None:
        self.timeline.show(recording)
        self.collectives.show(recording)

    def place(self, position: CursorPosition, move: int = 0) -> None:
        self.timeline.place(
            position.cursor, position.here, is_to_come=position.is_to_come, is_past_end=position.is_past_end
        )
        self.collectives.place(position.cursor, move)

    def show_recorded(self, message: messages.RecordedRead, recording: Recording) -> None:
        self.source.show(message.source)
        self.stack.show(message.frames, message.frame)
        self.values.show(message.values, (), "recorded")
        self.peers.show_recorded(recording, message.row)

    def show_stop(self, state: State, position: CursorPosition | None) -> None:
        """Of the living rank, where the cursor is where it stands. Between two collectives nobody takes part: the one
        under the cursor is told as it was recorded."""
        self.source.show(state.source)
        self.stack.show(state.frames, state.frame)
        self.values.show(state.values, own_names(state.names), "of the rank, now", state.watches)
        self.console.line.completion.names = tuple(str(name["name"]) for name in state.names)
        if state.peers:
            self.peers.show_live(state.peers)
        elif position is not None and len(position.recording):
            self.peers.show_recorded(position.recording, position.cursor)

    def show_session(
        self, state: State, position: CursorPosition, verdicts: Verdicts, notes: Mapping[Moment, str]
    ) -> None:
        """Breakpoints, checkpoints, verdicts and notes, wherever the cursor is."""
        recording = position.recording
        for stop in state.stops:
            if stop not in self._stop_rows:
                self._stop_rows[stop] = rows_of_breakpoint(recording, stop)
        stops = sorted({int(row) for stop in state.stops for row in self._stop_rows[stop]})
        checkpoints = tuple(position.row_at(checkpoint.moment) for checkpoint in state.checkpoints)
        self.timeline.mark(checkpoints, tuple(stops))
        self.timeline.judge(verdicts)
        noted = frozenset(row for moment in notes if (row := recording.exact_row(moment)) is not None)
        self.collectives.judge(verdicts, frozenset(stops), noted)
        self.stops.show(state, notes)

    def repaint(self, state: State) -> None:
        """What was mixed from the theme's colours is mixed again."""
        self.header.show(state)
        self.incident.again()
        self.status.show(state)
        self.keys.paint()
        self.source.again()
        self.console.log_pane.again()
        self.output.again()
        self.memory.again()
        self.stops.again()
        self.timeline.repaint()
        self.collectives.refresh()
