"""Live memory as areas, or as bars where there is little room: the keys go from one to the next and into them, and so
does the mouse."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from textual import events
from textual.binding import BindingType
from textual.message import Message
from textual.widgets import Static

from prismdbg_tui.drawing.colors import color
from prismdbg_tui.memory.bars_drawing import bar_at, draw_bars, fits_areas
from prismdbg_tui.memory.treemap_drawing import MapInk, draw_map, label_of, node_at
from prismdbg_tui.memory.treemap_walk import Areas, Side
from prismdbg_tui.memory.view import MemoryNode
from prismdbg_tui.session.actions import TREEMAP, bindings_of


class Treemap(Static):
    can_focus = True
    BINDINGS: ClassVar[list[BindingType]] = bindings_of(TREEMAP)

    class Chosen(Message):
        """`label`: the area under the cursor, or what lies under the mouse inside of it."""

        def __init__(self, label: str) -> None:
            super().__init__()
            self.label = label

    def __init__(self) -> None:
        super().__init__("", id=TREEMAP)
        self._areas = Areas()
        self._signed = False

    @property
    def inside(self) -> str:
        """The name of the area that fills the pane; empty where all do."""
        return self._areas.inside.label if self._areas.inside is not None else ""

    @property
    def has_areas(self) -> bool:
        """The pane is large enough for areas with names; else they are a list of bars."""
        return fits_areas(self.size.width, self.size.height)

    def fill(self, nodes: tuple[MemoryNode, ...], *, signed: bool) -> None:
        self._areas, self._signed = self._areas.of(nodes), signed
        self._draw()

    def walk(self, side: Side) -> None:
        """In a list of bars, up and down; to the right into an area, to the left out of it."""
        if self.has_areas:
            self._go(self._areas.towards(side, self.size.width, self.size.height))
        elif side in (Side.ABOVE, Side.BELOW):
            self._go(self._areas.next_by_size(1 if side is Side.BELOW else -1))
        else:
            self._go(self._areas.opened() if side is Side.RIGHT else self._areas.closed())

    def go_in(self) -> None:
        """`UsageError` where there is nothing inside."""
        self._go(self._areas.opened())

    def go_out(self) -> None:
        """`UsageError` where one is in no area."""
        self._go(self._areas.closed())

    def on_resize(self) -> None:
        self._draw()

    def on_click(self, event: events.Click) -> None:
        """Twice: into it."""
        areas, width, height = self._areas, self.size.width, self.size.height
        if not self.has_areas:
            bar = bar_at(areas.shown, height, event.y, areas.chosen)
            at = areas if bar is None else replace(areas, at=bar)
            self._go(at.opened() if bar is not None and bar.children and event.chain > 1 else at)
            return
        at = areas.pointed(width, height, event.x, event.y)
        if at.chosen is not None and at.chosen.children and event.chain > 1:
            self._go(at.opened())
        else:
            self._go(at, node_at(areas.shown, width, height, event.x, event.y))

    def _go(self, areas: Areas, pointed: MemoryNode | None = None) -> None:
        self._areas = areas
        self._draw()
        if (node := pointed or areas.chosen) is not None:
            self.post_message(self.Chosen(label_of(node, signed=self._signed)))

    def _draw(self) -> None:
        if self.size.width < 1 or self.size.height < 1:
            return
        ink = MapInk(
            background=self.background_colors[1].hex6,
            block=color(self.app, "primary"),
            quiet=color(self.app, "secondary"),
            more=color(self.app, "error"),
            less=color(self.app, "success"),
            chosen=color(self.app, "accent"),
        )
        areas, (width, height) = self._areas, self.size
        draw = draw_map if self.has_areas else draw_bars
        self.update(draw(areas.shown, width, height, ink, signed=self._signed, chosen=areas.chosen))
