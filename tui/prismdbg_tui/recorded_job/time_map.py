"""The map of all ranks' time: draws what `time_view` has folded, and tells where the mouse is."""

from __future__ import annotations

from collections.abc import Sequence, Set

from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.message import Message
from textual.strip import Strip
from textual.widget import Widget

from prismdbg.jobs.run_overview import RankRow, RunOverview
from prismdbg_tui.drawing import figures
from prismdbg_tui.drawing.colors import color, faded
from prismdbg_tui.recorded_job import time_drawing
from prismdbg_tui.recorded_job.time_drawing import Look
from prismdbg_tui.recorded_job.time_view import TimePlace, TimeView, time_view
from prismdbg_tui.timeline.lanes_drawing import segments

FRAME = 3  # lines that are no ranks: the border, the ruler
_LEAST_TITLE = 4  # characters


class TimeMap(Widget, can_focus=True):
    class Fitted(Message):
        """Its cells are others: what is said of the one under the cursor is of what it was before."""

    class Chosen(Message):
        """A cell under the mouse; `drop`: and into its rank."""

        def __init__(self, place: TimePlace, *, drop: bool) -> None:
            self.place = place
            self.drop = drop
            super().__init__()

    def __init__(self) -> None:
        super().__init__(id="map", classes="pane")
        self.place = TimePlace(0, 0)
        self.view: TimeView | None = None
        self._ranks: tuple[RankRow, ...] = ()
        self._suspects: Set[int] = frozenset()
        self._lasted_ns = self._titles = 0
        self._begins_later = False

    def show(self, ranks: Sequence[RankRow], job: RunOverview, suspects: Set[int]) -> None:
        """`ranks`: in their order. suspects: those that findings are about."""
        self._ranks, self._suspects = tuple(ranks), suspects
        self._lasted_ns, self._begins_later = job.lasted_ns, job.begins_later
        self._fit()

    def go_to(self, place: TimePlace) -> None:
        self.place = place
        self.refresh()

    @property
    def parts(self) -> slice:
        """Those of the cell under the cursor."""
        if self.view is None:
            return slice(self.place.part, self.place.part + 1)
        return self.view.parts_in(self.view.cell_of(self.place.part))

    def _fit(self) -> None:
        if not self._ranks:
            return
        lines, width = max(self.size.height - 1, 1), self.size.width
        shared = time_view(self._ranks, lines, 1)
        longest = max(len(time_drawing.row_title(shared, row * shared.height)) for row in range(shared.rows))
        self._titles = max(longest, _LEAST_TITLE) + 2
        self.view = time_view(self._ranks, lines, width - self._titles)
        folded = f", the largest of {figures.count(self.view.per_row)} ranks per row" if self.view.per_row > 1 else ""
        newest = ", newest part of the job" if self._begins_later else ""
        self.border_title = f"Time of the ranks{newest}{folded}"
        self.border_subtitle = time_drawing.legend(self._look())
        self.refresh()

    def _look(self) -> Look:
        background, text = self.background_colors[1].hex6, color(self.app, "foreground")
        return Look(
            background=background,
            text=text,
            between=faded(text, background, 0.85),
            inside=color(self.app, "primary"),
            waiting=color(self.app, "warning"),
            awaited=color(self.app, "error"),
            colorless=self.app.no_color,
        )

    def on_resize(self) -> None:
        self._fit()
        self.post_message(self.Fitted())

    def render_line(self, y: int) -> Strip:
        base, view = self.rich_style, self.view
        if view is None:
            return Strip.blank(self.size.width, base)
        row, cell = view.row_of(self.place.rank), view.cell_of(self.place.part)
        if y == 0:
            times = Segment(time_drawing.ruler(self._lasted_ns, view.cells, cell), base + Style(dim=True))
            return self._strip(Segment(" " * self._titles, base), [times])
        cells = segments(time_drawing.map_cells(view, y - 1, (row, cell), self._look()))
        title = time_drawing.row_title(view, y - 1)
        here = (y - 1) // view.height
        return self._strip(Segment(f"{title:>{self._titles - 1}} ", base + self._of_title(view, here, row)), cells)

    def _of_title(self, view: TimeView, row: int, cursor: int) -> Style:
        is_suspect = row < view.rows and any(each.rank in self._suspects for each in view.ranks_in(row))
        ink = color(self.app, "error") if is_suspect and not self.app.no_color else None
        return Style(color=ink, bold=is_suspect or row == cursor, dim=not is_suspect and row != cursor)

    def _strip(self, head: Segment, cells: list[Segment]) -> Strip:
        return Strip([head, *cells]).adjust_cell_length(self.size.width, self.rich_style)

    def on_click(self, event: events.Click) -> None:
        at = event.get_content_offset_capture(self)
        if self.view is None:
            return
        row, cell = (at.y - 1) // self.view.height, at.x - self._titles
        if 0 <= row < self.view.rows and 0 <= cell < self.view.cells:
            self.post_message(self.Chosen(self.view.at(row, cell), drop=event.chain > 1))
