"""Lays the panes out on the screen: the arrangement, carried out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from prismdbg_tui.session.panes import Panes
from prismdbg_tui.session.visible_panes import LEAST_FOR_TIMELINE, Room, VisiblePanes, arrange, room, timeline_height
from prismdbg_tui.widgets.pane import fold

if TYPE_CHECKING:
    from prismdbg_tui.session.app import PrismApp


class Layout:
    def __init__(self, app: PrismApp, panes: Panes) -> None:
        self._app = app
        self._panes = panes
        self._visible_panes = VisiblePanes()
        self._came_from = ""  # where a command was begun

    @property
    def pane(self) -> str:
        """The chosen one."""
        return self._visible_panes.pane

    @property
    def chosen(self) -> tuple[str, ...]:
        """Of panes that share a place those in front; the chosen one is the last."""
        return (*sorted(self._visible_panes.front - {self.pane}), self.pane)

    def focused(self, pane: str) -> None:
        """Somebody went there by mouse."""
        self._visible_panes = self._visible_panes.choosing(pane)
        self._panes.tabs.show(pane)

    def choose(self, pane: str) -> None:
        self._came_from = ""
        self._visible_panes = self._visible_panes.choosing(pane)
        self.apply()
        self._app.screen.set_focus(self._panes.focus_of(pane))

    def restore(self, panes: Sequence[str]) -> None:
        """As they were chosen, one after the other; only the last one gets the keys. Nothing is printed yet: in place
        of the empty output it is the table."""
        known = [pane if pane != "output" else "collectives" for pane in panes]
        for pane in known:
            self._visible_panes = self._visible_panes.choosing(pane)
        if known:
            self.choose(known[-1])

    def begin_command(self) -> None:
        """Focus the console's line. It keeps the keys, command after command, until `end_command`."""
        came_from = self.pane if self.pane != "console" else self._came_from
        self.choose("console")
        self._came_from = came_from
        self._panes.console.line.begin()

    def end_command(self) -> None:
        """Back to the pane where the command was begun."""
        self.choose(self._came_from or "collectives")

    def leave_line(self) -> None:
        """Back to the pane that is chosen: another one may not be seen."""
        self._app.screen.set_focus(self._panes.focus_of(self.pane))

    def maximise(self) -> None:
        self._visible_panes = self._visible_panes.maximising()
        self.apply()

    def apply(self) -> None:
        width, height = self._app.size
        size = room(width, height)
        shown = self._visible_panes.seen(size, live=self._app.live is not None, lines=height)
        if "console" in shown and self.pane != "output" and self._panes.output.is_empty:
            shown = [pane for pane in shown if pane != "output"]
        screen = self._app.screen_stack[0]
        screen.set_class(size is Room.NARROW and not self._visible_panes.maximised, "-narrow")
        screen.set_class(size is Room.AMPLE, "-ample")
        screen.set_class(size is not Room.NARROW and not self._visible_panes.maximised, "-folds")
        self._panes.incident.display = self._panes.incident.found and height >= LEAST_FOR_TIMELINE
        self._panes.incident.again()  # its lines depend on those of the terminal
        hidden = not self._panes.memory.display
        timeline = self._panes.timeline
        arrange(screen, shown, timeline_height(timeline.lanes, size, height) + timeline.has_sensor)
        self._panes.name_places(shown if size is not Room.NARROW else ())
        fold(screen.query_one("#foot"))
        self._panes.tabs.show(self._visible_panes.pane)
        if hidden and self._panes.memory.display:
            self._app.views.look_at_memory()
