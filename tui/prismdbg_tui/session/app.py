"""The application: holds the parts, hands each message to the one it concerns. Decides nothing about a rank."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import ClassVar

from textual import events
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.widgets import Input

from prismdbg.capsule.capsule_dir import Capsule
from prismdbg.errors import PrismError, UsageError
from prismdbg.model.moment import Moment
from prismdbg.session.help import help_of
from prismdbg.session.line import Verb, parse_line
from prismdbg_tui.drawing.themes import use_themes
from prismdbg_tui.refusals import with_hint
from prismdbg_tui.screens.differences import Differences
from prismdbg_tui.screens.pictured_app import PicturedApp
from prismdbg_tui.session import actions, answers, keymap, messages
from prismdbg_tui.session.action_handlers import ActionHandlers
from prismdbg_tui.session.cursor import CursorPosition
from prismdbg_tui.session.cursor_views import EXPORT_TIMELINE, CursorViews
from prismdbg_tui.session.debugger_messages import moment_of
from prismdbg_tui.session.facts import facts
from prismdbg_tui.session.incident import IncidentLead
from prismdbg_tui.session.layout import Layout
from prismdbg_tui.session.live import Live
from prismdbg_tui.session.navigation import CursorNavigation
from prismdbg_tui.session.notes import Notes
from prismdbg_tui.session.palette import Actions
from prismdbg_tui.session.panes import Panes
from prismdbg_tui.session.reader import CapsuleReader
from prismdbg_tui.session.sidecar import Kept, Sidecar
from prismdbg_tui.session.views import BUSY, Phase, State
from prismdbg_tui.session.visible_panes import PANES
from prismdbg_tui.timeline.recording import Recording
from prismdbg_tui.widgets.key_bar import KeyBar

_AT_ONCE = frozenset({"ctrl+c", "ctrl+q"})  # also while keys wait for a search


class PrismApp(PicturedApp[int]):
    """Over one capsule; with a rank to run (`live`), or over its record alone. `at`: where to look first, else the
    incident. above: there is a screen that escape leads back to, once nothing else is to be left."""

    CSS_PATH = Path(__file__).parents[1] / "styles.tcss"
    TITLE = "prismdbg"
    COMMANDS = App.COMMANDS | {Actions}
    shown_actions = actions.ACTIONS
    BINDINGS: ClassVar[list[BindingType]] = [
        *actions.bindings(),
        Binding("escape", "escape", show=False),
        Binding("ctrl+c", "interrupt", show=False, priority=True),
    ]

    def __init__(
        self,
        capsule: Capsule,
        name: str,
        *,
        live: Live | None = None,
        keys: Mapping[str, str] | None = None,
        at: Moment | None = None,
        above: bool = False,
        sidecar: Sidecar | None = None,
        first_lines: tuple[str, ...] = (),
        told: Sequence[str] = (),
    ) -> None:
        """`first_lines`: what the rank was told at first, where nothing else was kept in `sidecar`. told: what was said
        on the way here, of a capsule that was made for it for instance."""
        super().__init__()
        self._told = tuple(told)
        self.first_lines = first_lines
        sidecar = sidecar or Sidecar(None)
        try:
            kept, self._unread = sidecar.read(), ""
        except PrismError as error:
            kept, self._unread = Kept(), f"{error}\n  try: {error.hint}"
        self.capsule = capsule
        self.live = live
        self._above = above
        self.keys_shown = keymap.in_force(keys or {})
        self.set_keymap(dict(keys or {}))
        self.state = State()
        self.condition_of: int | None = None
        self._waiting: list[str | events.Event] = []  # until a search has ended: actions, and keys for a line
        self._asked = at
        self._wanted = at or moment_of(str(capsule.manifest.incident.moment or ""))
        queued: Callable[[], Sequence[str]] = (lambda: live.queued) if live is not None else tuple
        self.panes = Panes(
            name, capsule.manifest, self.keys_shown, live=live is not None, queued=queued, told=self._told
        )
        self.layout = Layout(self, self.panes)
        self.views = CursorViews(self, self.panes, CapsuleReader(capsule))
        self.navigation = CursorNavigation(self, self.panes, self.views)
        self.incident = IncidentLead(self, self.panes)
        self.notes = Notes(self, self.panes, sidecar, kept)
        self._handlers = ActionHandlers(self)

    def compose(self) -> ComposeResult:
        yield from self.panes.compose()

    def on_mount(self) -> None:
        use_themes(self)
        self.layout.apply()
        for line in (*self._told, *facts(self.capsule.manifest)):
            self.panes.console.say(line, "event")
        if self._above:
            self.panes.console.say(f"esc, from the table, or {self.keys_shown['leave']}: back to all ranks", "event")
        self.notes.restore_panes()
        if self._unread:
            self.panes.console.say(self._unread, "error")
            self.panes.status.fail(self._unread)
        self.views.read()
        if self.live is not None:
            self.live.start(self.post_message)

    @property
    def position(self) -> CursorPosition | None:
        return self.navigation.position

    @property
    def recording(self) -> Recording | None:
        return self.position.recording if self.position is not None else None

    @property
    def cursor(self) -> int:
        return self.position.cursor if self.position is not None else 0

    @property
    def here(self) -> int | None:
        """The rank's row."""
        return self.position.here if self.position is not None else None

    @property
    def is_settled(self) -> bool:
        """The log is read, and the rank stands, if there is one."""
        stands = self.live is None or self.state.phase not in (Phase.LOOKING, *BUSY)
        return self.recording is not None and stands and super().is_settled

    @property
    def doing(self) -> str:
        return self.state.doing if self._busy else ""

    @property
    def standing(self) -> str:
        return "" if self.live is None else f"{self.state.phase} at {self.state.moment}"

    # what workers tell

    def on_recording_read(self, message: messages.RecordingRead) -> None:
        self.navigation.begin(message.recording, self._wanted)
        if self._asked is not None and self.live is None:
            self._tell_of_the_end(self._asked)
        self.layout.apply()
        if (damage := message.recording.columns.damage) is not None:
            self.notify(str(damage), title="the log ends early", severity="warning")
        for line in message.recording.whereabouts:
            self.panes.console.say(line, "event")
        self.navigation.show_state(self.state, follow=True)
        self.views.diagnose()
        if self.live is not None or not len(message.recording):
            self.filled()

    def on_finding_read(self, message: messages.FindingRead) -> None:
        self.incident.found(message.finding)
        self.layout.apply()

    def on_compared(self, message: messages.Compared) -> None:
        self.panes.status.forget_error()
        shown = Differences(message.title, message.lines, message.equal, message.moment)
        self.push_screen(shown, self._go_to_difference)

    def _go_to_difference(self, moment: Moment | None) -> None:
        if moment is not None:
            self.navigation.go_to(moment)

    def on_failed(self, message: messages.Failed) -> None:
        text = f"{message.text}\ntry: {message.hint}" if message.hint else message.text
        self.notify(text, severity="error", timeout=12)
        self.panes.console.say(text, "error")
        self.panes.status.fail(text)
        self.fatal = self.fatal or message.fatal
        self.filled()

    def on_rows_found(self, message: messages.RowsFound) -> None:
        self.navigation.found(message)

    async def on_search_ended(self) -> None:
        """What was asked for meanwhile is about where the search led to."""
        self.views.searches -= 1
        waiting, self._waiting = self._waiting, []
        for each in waiting:
            if isinstance(each, str):
                self.act(each)
            else:
                await self.on_event(each)

    def on_recorded_read(self, message: messages.RecordedRead) -> None:
        self.views.looked(message)
        self.filled()

    def on_memory_read(self, message: messages.MemoryRead) -> None:
        self.views.memory_read(message)
        alone = len(self.screen_stack) == 1  # none is there once the screen is left
        if alone and self.layout.pane == "memory" and self.focused is None:
            self.layout.leave_line()  # it was chosen while there was nothing yet that could take the keys

    def on_state_changed(self, message: messages.StateChanged) -> None:
        before, self.state = self.state, message.state
        self.notes.observe(self.state)
        self.panes.header.show(self.state)
        self.panes.status.show(self.state)
        self.panes.console.line.meanwhile(self._busy)
        if self.state.phase is Phase.LOST and before.phase is not Phase.LOST:
            self._tell_of_loss()
        arrived = self.state.phase in (Phase.STOPPED, Phase.FINISHED, Phase.HUNG) and self.state.moment != before.moment
        self.navigation.show_state(self.state, follow=arrived or before.phase is not self.state.phase)
        self.incident.again()

    def on_said(self, message: messages.Said) -> None:
        self.panes.console.say(message.text, message.kind)
        if message.kind == "error":
            self.panes.status.fail(message.text)

    def on_output_grew(self, message: messages.OutputGrew) -> None:
        was_empty = self.panes.output.is_empty
        self.panes.output.add(message.data, message.start_bytes)
        if was_empty:
            self.layout.apply()

    def on_output_cut(self, message: messages.OutputCut) -> None:
        self.panes.output.cut(message.length_bytes)
        if self.panes.output.is_empty:
            self.layout.apply()

    # what widgets tell

    def on_cursor_moved(self, message: messages.CursorMoved) -> None:
        self._handlers.carry_out(lambda: self.navigation.move(message.row, message.number))

    def on_moment_chosen(self, message: messages.MomentChosen) -> None:
        self._handlers.carry_out(lambda: self.navigation.go_to(message.moment))

    def on_frame_chosen(self, message: messages.FrameChosen) -> None:
        self._handlers.carry_out(lambda: self.views.choose_frame(by=message.frame - self.views.frame))

    def on_pane_chosen(self, message: messages.PaneChosen) -> None:
        self._handlers.carry_out(lambda: self.layout.choose(message.pane))

    def on_line_typed(self, message: messages.LineTyped) -> None:
        """Where nothing runs a moment moves the cursor; a rank goes there itself."""
        if self.live is None and (moment := moment_of(message.text)):
            self.panes.console.say(f"cursor to {moment}", "asked")
            self._handlers.carry_out(lambda: self.navigation.go_to(moment))
            self._tell_of_the_end(moment)
        else:
            self.type_line(message.text)

    def _tell_of_the_end(self, asked: Moment) -> None:
        """Where the cursor is not at what was asked for, because the log ends before it."""
        if self.position is not None and self.position.is_after_log(asked):
            text = f"{asked} is after the last collective in this capsule: the cursor is at {self.position.moment}"
            self.panes.status.tell(text)
            self.panes.console.say(text, "event")

    def on_asked(self, message: messages.Asked) -> None:
        self.layout.leave_line()
        self._handlers.carry_out(lambda: self._handlers.asked(message))

    async def on_event(self, event: events.Event) -> None:
        """Behind a key that opens a line, and waits, each key is a character of that line."""
        if self._is_for_a_line_to_come(event):
            self._waiting.append(event)
        else:
            await super().on_event(event)

    def _is_for_a_line_to_come(self, event: events.Event) -> bool:
        if not isinstance(event, events.Key | events.Paste) or event.is_forwarded:
            return False
        if isinstance(event, events.Key) and event.key in _AT_ONCE:
            return False
        return any(each in actions.OPENS_A_LINE for each in self._waiting if isinstance(each, str))

    def on_key_bar_pressed(self, message: KeyBar.Pressed) -> None:
        self.act(message.action_name)

    def on_prompt_left(self) -> None:
        self.layout.leave_line()

    def on_descendant_focus(self, event: events.DescendantFocus) -> None:
        """Each widget tells it in its own time: it may be told after the focus has moved on, as at the start."""
        if event.widget is not self.focused:
            return
        for widget in event.widget.ancestors_with_self:
            if widget.id in PANES:
                self.layout.focused(widget.id)

    def watch_theme(self, _name: str) -> None:
        if self.is_mounted(self.panes.header):
            self.call_after_refresh(self._repaint)

    def on_resize(self) -> None:
        self.call_after_refresh(self.layout.apply)

    # what actions and messages come down to

    def unavailable(self, action: actions.Action) -> str:
        return actions.unavailable(action, live=self.live is not None)

    def act(self, name: str) -> None:
        if self.views.searches and name not in ("pause", "leave"):
            self._waiting.append(name)
        else:
            self._handlers.do(name)

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

    def action_escape(self) -> None:
        """Clear a line that holds text; else cancel what takes long; else leave the line, the pane, the screen."""
        line = self.focused if isinstance(self.focused, Input) else None
        if self._busy and not (line is not None and line.value):
            self.interrupt()
        elif line is self.panes.console.line:
            line.value = ""
            self.layout.end_command()
        elif self.focused is self.panes.collectives and self._runs_on:
            self._stop_soon()
        elif self._above and self.focused is self.panes.collectives:
            self.leave()
        else:
            self.layout.choose("collectives")

    def action_interrupt(self) -> None:
        """Ctrl+C, as in every debugger; where nothing runs it copies what is selected, or says how to quit."""
        if self._busy:
            self.interrupt()
        elif self._runs_on:
            self._stop_soon()
        elif isinstance(self.focused, Input) and self.focused.selected_text:
            self.focused.action_copy()
        elif self.screen.get_selected_text():
            self.screen.action_copy_text()
        else:
            self.panes.status.tell(f"nothing runs here; {self.keys_shown['leave']} quits")

    @property
    def _busy(self) -> bool:
        return self.live is not None and self.state.phase in BUSY

    @property
    def _runs_on(self) -> bool:
        return self.live is not None and self.state.phase is Phase.RUNS_ON

    def _stop_soon(self) -> None:
        """A rank that nobody waits for cannot be stopped inside of a call."""
        self.interrupt()
        keys = self.keys_shown
        self.refuse(f"the rank stops at its next collective; {keys['restart']} goes back, {keys['leave']} quits")

    def interrupt(self) -> None:
        """Cancel what takes long, and drop what was typed ahead."""
        if self.live is not None:
            self.live.pause()

    def confirm(self, text: str) -> None:
        """In the status line, where that is free: a notification covers a part of the panes."""
        if self.panes.status.is_free:
            self.panes.status.confirm(text)
        else:
            self.notify(text, timeout=2)

    def type_line(self, text: str) -> None:
        """To the rank; where nothing runs only help, quit and the export of the timeline have a meaning."""
        if text:
            self.panes.status.fail("")
            self.panes.console.say(f"› {text}", "asked")
        if text in ("q", "quit"):
            self.leave()
        elif text in ("h", "help"):
            self.act("help")
        elif self.live is not None:
            if text:
                if self._busy:
                    self.panes.console.say(f"  queued: runs after {self.state.doing or 'the start'}", "event")
                self.live.type_line(text)
        elif text.startswith((f"{Verb.HELP} ", "h ")):
            self._explain(text)
        elif text.startswith(EXPORT_TIMELINE):
            self.views.export_timeline(text.removeprefix(EXPORT_TIMELINE).strip())
        elif text:
            runs = self.capsule.manifest.not_replayable or "`prismdbg debug` runs it"
            self.panes.console.say(f"read-only view of the recording; {runs}; a moment moves the cursor", "error")

    def _explain(self, text: str) -> None:
        try:
            self.panes.console.say(answers.answer(help_of(parse_line(text))), "said")
        except UsageError as error:
            self.panes.console.say(with_hint(error), "error")

    def on_unmount(self) -> None:
        self.notes.keep()

    def leave(self) -> None:
        if self.live is not None:
            self.live.close()
        self.exit(0)

    def _tell_of_loss(self) -> None:
        if self.state.is_cancelled:  # the status line says it
            return
        again = f"{self.keys_shown['restart']} restores it from a checkpoint" if self.state.checkpoints else ""
        text = f"{self.state.lost_because}\n{again}".strip()
        self.notify(text, title="the rank is lost", severity="error", timeout=12)

    def _repaint(self) -> None:
        """What was mixed from the theme's colours is mixed again."""
        self.panes.repaint(self.state)
        self.panes.tabs.show(self.layout.pane)
        self.views.again(elsewhere=False)
