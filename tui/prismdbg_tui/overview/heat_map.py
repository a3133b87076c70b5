"""The heat map: draws what the overlook has folded, and tells where the mouse is."""

from __future__ import annotations

from itertools import groupby

from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.content import Content
from textual.message import Message
from textual.strip import Strip
from textual.widget import Widget

from prismdbg_tui.drawing import figures
from prismdbg_tui.drawing.colors import color, faded
from prismdbg_tui.overview import heat_drawing
from prismdbg_tui.overview.grid import Place
from prismdbg_tui.overview.heat_drawing import Look
from prismdbg_tui.overview.view import MapView

_TITLE = 14  # characters beside the map, at most


class HeatMap(Widget, can_focus=True):
    class Chosen(Message):
        """A cell under the mouse; `drop`: and into it."""

        def __init__(self, cell: Place, *, drop: bool) -> None:
            self.cell = cell
            self.drop = drop
            super().__init__()

    class Wheel(Message):
        def __init__(self, *, closer: bool) -> None:
            self.closer = closer
            super().__init__()

    class Fitted(Message):
        """The map has other room, and with it other cells."""

    def __init__(self, map_view: MapView) -> None:
        super().__init__(id="map", classes="pane")
        self._overlook = map_view
        self.titles = 0

    def show(self) -> None:
        """What the overlook is at now."""
        self._fit()
        look, metric = self._overlook, self._overlook.metric
        per_cell = len(look.ranks_here)
        folded = f" · {look.fold} of {figures.count(per_cell)} ranks per cell" if per_cell > 1 else ""
        self.border_title = Content(f"{metric.name}: {metric.says}{folded}")
        self.border_subtitle = Content.assemble(self._axes(), "   ", *self._legend())
        self.refresh()

    def _fit(self) -> None:
        grid, part = self._overlook.grid, self._overlook.part
        rows = (part.row, part.row + part.rows - 1)
        longest = max((len(_plain(grid.row_at(row))) for row in rows), default=0) if grid.rows else 8
        self.titles = min(max(longest, 4), _TITLE, max(self.size.width // 5, 4)) + 2
        self._overlook.fit(max(self.size.height - 1, 1), max(self.size.width - self.titles, 1))

    def _axes(self) -> Content:
        grid, part = self._overlook.grid, self._overlook.part
        rows, columns = " x ".join(grid.rows) or "-", " x ".join(grid.columns) or "-"
        inside = f", inside {' x '.join(grid.inside)}" if grid.shape[2] > 1 else ""
        seen = part.rows * part.columns
        whole = "" if seen == grid.shape[0] * grid.shape[1] else f", {seen / (grid.shape[0] * grid.shape[1]):.1%} of it"
        return Content.styled(f"rows {rows}, columns {columns}{inside}{whole}", "dim")

    def _legend(self) -> list[tuple[str, str]]:
        """Its parts, each with its look."""
        look = self._look()
        cells = heat_drawing.legend(look, min(self.size.width // 3, 44))
        parts = []
        for ground, run in groupby(cells, key=lambda cell: cell[1].bgcolor):
            text = "".join(character for character, _ in run)
            is_text = ground is None or ground.name == look.background
            parts.append((text, "dim" if is_text else f"on {ground.name}"))
        return parts

    def _look(self) -> Look:
        metric = self._overlook.metric
        background = self.background_colors[1].hex6
        text = color(self.app, "foreground")
        return Look(
            scale=self._overlook.scale,
            unit=metric.unit,
            background=background,
            quiet=text if self.app.no_color else faded(text, background, 0.25),
            accent=color(self.app, "accent"),
            dark=self.app.current_theme.dark,
            colorless=self.app.no_color,
        )

    def on_mount(self) -> None:
        self.show()

    def on_resize(self) -> None:
        self.show()
        self.post_message(self.Fitted())

    def render_line(self, y: int) -> Strip:
        base, width = self.rich_style, self.size.width
        folded = self._overlook.folded
        quiet = base + Style(dim=True)
        if y == 0:
            return _strip(Segment(" " * self.titles, base), [Segment(heat_drawing.ruler(folded), quiet)], width, base)
        title = heat_drawing.row_title(folded, y - 1, self.titles - 2)
        cells = heat_drawing.map_line(folded, y - 1, self._overlook.cell, self._look())
        return _strip(Segment(f" {title:<{self.titles - 1}}", quiet), cells, width, base)

    def on_click(self, event: events.Click) -> None:
        at = event.get_content_offset_capture(self)
        cell = self._overlook.folded.frame.cell_on(at.y - 1, at.x - self.titles) if at.y >= 1 else None
        if cell is not None:
            self.post_message(self.Chosen(cell, drop=event.chain > 1))

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        event.stop()
        self.post_message(self.Wheel(closer=False))

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        event.stop()
        self.post_message(self.Wheel(closer=True))


def _strip(head: Segment, cells: list[Segment], width: int, base: Style) -> Strip:
    return Strip([head, *cells]).adjust_cell_length(width, base)


def _plain(at: dict[str, int]) -> str:
    return " ".join(f"{name} {number}" for name, number in at.items())
