"""Live memory as areas; the mouse asks what an area is."""

from __future__ import annotations

from textual import events
from textual.message import Message
from textual.widgets import Static

from prismdbg_tui.colors import color
from prismdbg_tui.memory_view import MemoryNode
from prismdbg_tui.treemap_drawing import MapInk, draw_map, label_of, node_at


class Treemap(Static):
    can_focus = True

    class Chosen(Message):
        """`label`: what lies under the mouse."""

        def __init__(self, label: str) -> None:
            super().__init__()
            self.label = label

    def __init__(self) -> None:
        super().__init__("", id="treemap")
        self._groups: tuple[MemoryNode, ...] = ()
        self._signed = False

    def fill(self, nodes: tuple[MemoryNode, ...], *, signed: bool) -> None:
        self._groups, self._signed = nodes, signed
        self._draw()

    def on_resize(self) -> None:
        self._draw()

    def on_click(self, event: events.Click) -> None:
        node = node_at(self._groups, self.size.width, self.size.height, event.x, event.y)
        if node is not None:
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
        )
        self.update(draw_map(self._groups, self.size.width, self.size.height, ink, signed=self._signed))
