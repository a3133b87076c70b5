"""The application: holds the parts, hands each message to the widget it concerns. Decides nothing about a rank."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from textual import events
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.timer import Timer
from textual.widgets import Input

from prismdbg.capsule.capsule_dir import Capsule
from prismdbg_tui import actions, answers, arrangement, keymap, messages
from prismdbg_tui.conversation import moment_of
from prismdbg_tui.deeds import Deeds
from prismdbg_tui.facts import facts
from prismdbg_tui.live import Live
from prismdbg_tui.looking import Looker
from prismdbg_tui.palette import Actions
from prismdbg_tui.recording import Recording
from prismdbg_tui.themes import THEMES
from prismdbg_tui.verdicts import Verdicts
from prismdbg_tui.views import Phase, State
from prismdbg_tui.widgets.collectives import Collectives
from prismdbg_tui.widgets.console import Console, Output
from prismdbg_tui.widgets.header import Header
from prismdbg_tui.widgets.key_bar import KeyBar
from prismdbg_tui.widgets.peers import Peers
from prismdbg_tui.widgets.prompt import Prompt
from prismdbg_tui.widgets.source import Source
from prismdbg_tui.widgets.stack import Stack
from prismdbg_tui.widgets.tabs import Tabs
from prismdbg_tui.widgets.timeline import Timeline
from prismdbg_tui.widgets.values import Values

LOOK_AFTER_S = 0.06  # a row that the cursor only passes is not looked at
NO_ROWS: NDArray[np.int64] = np.zeros(0, dtype=np.int64)


class PrismApp(App[int]):
    """Over one capsule; with a rank to run (`live`), or over its record alone."""

    CSS_PATH = Path(__file__).with_name("styles.tcss")
    TITLE = "prismdbg"
    COMMANDS = App.COMMANDS | {Actions}
    BINDINGS: ClassVar[list[BindingType]] = [*actions.bindings(), Binding("escape", "leave_line", show=False)]

    def __init__(
        self, capsule: Capsule, name: str, *, live: Live | None = None, keys: Mapping[str, str] | None = None
    ) -> None:
        super().__init__()
        self.capsule = capsule
        self.live = live
        self.keys_shown = keymap.in_force(keys or {})
        self.recording: Recording | None = None
        self.state = State()
        self.cursor = 0
        self.here: int | None = None
        self.hits = NO_ROWS
        self.filtered_by = ""
        self.pane = "collectives"
        self.maximised = False
        self._lane = -1
        self._frame: int | None = None
        self._deeds = Deeds(self)
        self._looker = Looker(capsule)
        self._look_timer: Timer | None = None
        self._wanted: str = str(capsule.manifest.incident.moment or "")
        self.set_keymap(dict(keys or {}))
        self.header = Header(name, capsule.manifest)
        self.timeline, self.collectives, self.prompt = Timeline(), Collectives(), Prompt()
        self.source, self.stack, self.values, self.peers = Source(), Stack(), Values(), Peers()
        self.console_pane, self.output, self.tabs = Console(), Output(), Tabs()
        self.key_bar = KeyBar(self.keys_shown, live=live is not None)

    def compose(self) -> ComposeResult:
        yield self.header
        yield self.timeline
        yield self.tabs
        with Horizontal(id="body"):
            with Vertical(id="left"):
                yield self.collectives
                with Horizontal(id="talk"):
                    yield self.console_pane
                    yield self.output
            with Vertical(id="right"):
                yield self.source
                yield self.stack
                yield self.values
                yield self.peers
        yield self.prompt
        yield self.key_bar

    def on_mount(self) -> None:
        for theme in THEMES:
            self.register_theme(theme)
        self.theme = THEMES[0].name
        self._arrange()
        for line in facts(self.capsule.manifest):
            self.console_pane.say(line, "event")
        self.collectives.focus()
        self.run_worker(lambda: self.post_message(self._looker.read()), thread=True, group="read")
        if self.live is not None:
            self.live.start(self.post_message)

    # what workers tell

    def on_recording_read(self, message: messages.RecordingRead) -> None:
        self.recording = message.recording
        self.timeline.show(self.recording)
        self.collectives.show(self.recording)
        self._arrange()
        if (damage := self.recording.columns.damage) is not None:
            self.notify(str(damage), title="the log ends early", severity="warning")
        moment = moment_of(self._wanted)
        self.move_cursor(self.recording.columns.row_at(moment) if moment else self.recording.first)
        self._show_state()

    def on_failed(self, message: messages.Failed) -> None:
        hint = f"\n{message.hint}" if message.hint else ""
        self.notify(f"{message.text}{hint}".replace("[", r"\["), severity="error", timeout=12)
        self.console_pane.say(f"{message.text}{hint}", "error")

    def on_rows_found(self, message: messages.RowsFound) -> None:
        found = len(message.rows)
        if message.keeps:
            self._lane = -1
            self.timeline.choose_lane(-1)
            self._keep(message.rows if message.pattern else None, message.pattern)
        else:
            self.hits = message.rows if message.pattern else NO_ROWS
            self.collectives.mark(self.hits)
            if message.pattern and not found:
                self.refuse(f"nothing fits {message.pattern}")
            elif message.pattern:
                at = int(np.searchsorted(self.hits, self.cursor))
                self.move_cursor(int(self.hits[at % found]))

    def on_recorded_looked(self, message: messages.RecordedLooked) -> None:
        if message.row != self.cursor or self._at_rank:
            return
        self._frame = message.frame
        self.source.show(message.source)
        self.stack.show(message.frames, message.frame)
        self.values.show(message.values, (), "recorded")
        if self.recording is not None:
            self.peers.show_recorded(self.recording, message.row)

    def on_state_changed(self, message: messages.StateChanged) -> None:
        before, self.state = self.state, message.state
        self.header.show(self.state)
        if self.state.phase is Phase.LOST and before.phase is not Phase.LOST:
            self.notify(self.state.lost_because.replace("[", r"\["), title="the rank is gone", severity="error")
        if self.recording is not None:
            arrived = self.state.phase in (Phase.STOPPED, Phase.FINISHED) and self.state.moment != before.moment
            self._show_state(follow=arrived or before.phase is not self.state.phase)

    def on_said(self, message: messages.Said) -> None:
        self.console_pane.say(message.text, message.kind)

    def on_output_grew(self, message: messages.OutputGrew) -> None:
        self.output.add(message.text)

    # what widgets tell

    def on_cursor_moved(self, message: messages.CursorMoved) -> None:
        self.move_cursor(message.row)

    def on_frame_chosen(self, message: messages.FrameChosen) -> None:
        self.choose_frame(by=message.frame - self._chosen_frame)

    def on_pane_chosen(self, message: messages.PaneChosen) -> None:
        self.choose_pane(message.pane)

    def on_line_typed(self, message: messages.LineTyped) -> None:
        if moment := moment_of(message.text):
            self.console_pane.say(f"cursor to {moment}", "asked")
            if self.recording is not None:
                self.move_cursor(self.recording.columns.row_at(moment))
        else:
            self.type_line(message.text)

    def on_pattern_typed(self, message: messages.PatternTyped) -> None:
        if message.keeps:
            self.filtered_by = message.text
        self.collectives.focus()
        if self.recording is not None:
            find = partial(self._looker.find, self.recording, message.text, keeps=message.keeps)
            self.run_worker(lambda: self.post_message(find()), thread=True, group="find")

    def on_key_bar_pressed(self, message: KeyBar.Pressed) -> None:
        self.act(message.action_name)

    def on_prompt_left(self) -> None:
        self.collectives.focus()

    def on_descendant_focus(self, event: events.DescendantFocus) -> None:
        for widget in event.widget.ancestors_with_self:
            if widget.id in arrangement.PANES:
                self.pane = widget.id
                self.tabs.show(self.pane)

    def watch_theme(self, _name: str) -> None:
        """What was mixed from the theme's colours is mixed again."""
        if self.is_mounted(self.header):
            self.call_after_refresh(self._repaint)

    def on_resize(self) -> None:
        self.call_after_refresh(self._arrange)

    # what actions and messages come down to

    def act(self, name: str) -> None:
        self._deeds.do(name)

    def action_act(self, name: str) -> None:
        self.act(name)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """In a line, and in a screen above, every character is its own."""
        if action == "act" and parameters and parameters[0] in actions.OPENS_A_LINE:
            return len(self.screen_stack) == 1 and not isinstance(self.focused, Input)
        return super().check_action(action, parameters)

    def action_focus_next(self) -> None:
        self.act("pane_after")

    def action_focus_previous(self) -> None:
        self.act("pane_before")

    def action_leave_line(self) -> None:
        self.choose_pane("collectives")

    def refuse(self, reason: str) -> None:
        self.notify(reason.replace("[", r"\["), severity="warning", timeout=4)

    def type_line(self, text: str) -> None:
        """To the rank; where nothing runs only help and quit have a meaning."""
        if text:
            self.console_pane.say(f"› {text}", "asked")
        if text in ("q", "quit"):
            self.leave()
        elif self.live is not None:
            self.live.type_line(text or "next")
        elif text in ("h", "help"):
            self.console_pane.say(answers.help_text(""), "said")
        elif text:
            self.console_pane.say("nothing runs here: prismdbg debug runs the rank; a moment moves the cursor", "error")

    def move_cursor(self, row: int) -> None:
        if self.recording is None or not len(self.recording):
            return
        moved, self.cursor = self.cursor, min(max(row, 0), len(self.recording) - 1)
        self._frame = None if moved != self.cursor else self._frame
        self.timeline.place(self.cursor, self.here)
        self.collectives.place(self.cursor)
        self._show_panes()

    def choose_frame(self, by: int) -> None:
        if self._at_rank and self.live is not None:
            self.live.choose_frame(by)
        elif self.recording is not None and len(self.recording):
            frames = self.recording.columns.detail(self.cursor).frames
            chosen = self._chosen_frame + by
            if not 0 <= chosen < len(frames):
                self.refuse("that is the outermost frame" if by > 0 else "that is the innermost frame")
                return
            self._frame = chosen
            self._look()

    def choose_lane(self, by: int) -> None:
        """All groups, then one after the other."""
        if self.recording is not None:
            lanes = len(self.recording.lanes)
            self._lane = (self._lane + 1 + by) % (lanes + 1) - 1
            self.timeline.choose_lane(self._lane)
            rows = None if self._lane < 0 else np.flatnonzero(self.recording.lane_of == self._lane)
            self._keep(rows, "" if rows is None else self.recording.lanes[self._lane].group.title)

    def choose_pane(self, pane: str) -> None:
        self.pane = pane
        self._arrange()
        self.screen.set_focus(self.console_pane.line if pane == "console" else self.query_one(f"#{pane}"))

    def maximise_pane(self) -> None:
        self.maximised = not self.maximised
        self._arrange()

    def leave(self) -> None:
        if self.live is not None:
            self.live.close()
        self.exit(0)

    @property
    def _at_rank(self) -> bool:
        """The cursor is where the rank stands, so the panes show the living rank."""
        return self.state.phase is Phase.STOPPED and self.state.can_look and self.cursor == self.here

    @property
    def _chosen_frame(self) -> int:
        return self.state.frame if self._at_rank else self._frame or 0

    def _keep(self, rows: NDArray[np.int64] | None, pattern: str) -> None:
        self.filtered_by = pattern
        self.collectives.keep(rows, pattern)

    def _arrange(self) -> None:
        wide = arrangement.is_wide(self.size.width, self.size.height)
        panes = arrangement.seen(self.pane, wide=wide, maximised=self.maximised, live=self.live is not None)
        lanes = len(self.recording.lanes) if self.recording is not None else 1
        screen = self.screen_stack[0]
        screen.set_class(not wide and not self.maximised, "-narrow")
        arrangement.arrange(screen, panes, arrangement.timeline_height(lanes, wide=wide, lines=self.size.height))
        self.tabs.show(self.pane)

    def _show_state(self, *, follow: bool = True) -> None:
        assert self.recording is not None
        state = self.state
        standing = state.phase in (Phase.STOPPED, Phase.RUNNING, Phase.FINISHED, Phase.LOST) and state.runtime
        self.here = self.recording.columns.row_at(state.moment) if standing else None
        replayed_from = int(np.searchsorted(self.recording.columns.record_id, state.first_record))
        self.collectives.judge(
            Verdicts(
                here=self.here, replayed_from=replayed_from, diverged=state.diverged, synthesized=state.synthesized
            )
        )
        self.move_cursor(self.here if follow and self.here is not None else self.cursor)

    def _show_panes(self) -> None:
        if self._at_rank:
            self.source.show(self.state.source)
            self.stack.show(self.state.frames, self.state.frame)
            self.values.show(self.state.values, self.state.names, "of the rank, now")
            if self.state.peers:
                self.peers.show_live(self.state.peers)
            return
        if self._look_timer is not None:
            self._look_timer.stop()
        self._look_timer = self.set_timer(LOOK_AFTER_S, self._look)

    def _repaint(self) -> None:
        self.header.show(self.state)
        self.key_bar.paint()
        self.tabs.show(self.pane)
        self.source.again()
        self.console_pane.log_pane.again()
        self.output.again()
        self.timeline.repaint()
        self.collectives.refresh()
        if self.recording is not None:
            self._show_panes()

    def _look(self) -> None:
        if self.recording is not None and len(self.recording):
            look = partial(self._looker.look, self.recording, self.cursor, self._frame)
            self.run_worker(lambda: self.post_message(look()), thread=True, group="look", exclusive=True)
