"""Source lines around where a frame stands, with the line marked."""

from __future__ import annotations

from pathlib import PurePath

from rich.style import Style
from rich.syntax import Syntax
from rich.text import Span, Text
from textual.content import Content
from textual.geometry import Size
from textual.scroll_view import ScrollView
from textual.selection import Selection
from textual.strip import Strip
from textual.visual import Visual, visualize

from prismdbg_tui.drawing import figures
from prismdbg_tui.drawing.colors import color
from prismdbg_tui.session.views import SourceView
from prismdbg_tui.session.visible_panes import numbered

_ABOVE = 0.4  # how much of the pane lies above the marked line
_ABOVE_LINES = 2  # and at least so many lines, in a pane of four or more


def first_seen(marked: int, lines: int, height: int) -> int:
    """The line at the top of a pane of `height` lines that shows line `marked` of `lines` in its context, from 0."""
    above = max(int(height * _ABOVE), min(_ABOVE_LINES, height // 2))
    return max(min(marked - above, lines - height), 0)


class Source(ScrollView, can_focus=True):
    """Draws its lines itself: a child's text is laid out, and scrolled, only after the new title is drawn."""

    def __init__(self) -> None:
        super().__init__(id="source", classes="pane")
        self.border_title = "Source"
        self._shown: SourceView | None = None
        self._aimed = 0.0  # how far it was scrolled for the marked line
        self._text = Text()
        self._strips: list[Strip] = []
        self._looks: object = None  # what `_strips` were drawn for

    def show(self, source: SourceView) -> None:
        if source == self._shown:
            return
        self._shown = source
        name = PurePath(source.filename).name
        place = f"{name}:{source.line} {source.function}" if source.line else "Source"
        self.border_title = numbered("source", place)
        self.border_subtitle = Content(source.note if source.lines else "")
        self.set_class(not source.lines, "-empty")
        self.virtual_size = Size(0, max(len(source.lines), 1))
        self._aim()
        self.again()

    def again(self) -> None:
        """In the theme's colours of now."""
        self._looks = None
        self.refresh()

    def render_line(self, y: int) -> Strip:
        strips = self._drawn()
        line = self._top + y
        return strips[line] if line < len(strips) else Strip.blank(self.size.width, self.visual_style.rich_style)

    def get_selection(self, selection: Selection) -> tuple[str, str]:
        return selection.extract(self._text.plain), "\n"

    @property
    def _top(self) -> int:
        """In a pane of another height, the scrollbar follows after the first picture."""
        return self.scroll_offset.y if self._moved else self._target

    @property
    def _target(self) -> int:
        source = self._shown or SourceView()
        return first_seen(source.line - source.first, len(source.lines), self.size.height)

    @property
    def _moved(self) -> bool:
        """Somebody has scrolled to something else; a pane that grew can only be scrolled less far."""
        return self.scroll_y != min(self._aimed, self.max_scroll_y)

    def _aim(self) -> None:
        self.scroll_to(y=self._target, animate=False, immediate=True, force=True)
        self._aimed = self.scroll_y
        self.vertical_scrollbar.position = self.scroll_y  # nobody tells it while it is not shown

    def _drawn(self) -> list[Strip]:
        width, style = self.scrollable_content_region.width, self.visual_style
        looks = (width, style, self.text_selection)
        if looks != self._looks:
            self._text = Text() if self._shown is None else self._told(self._shown, width)
            self._strips = Visual.to_strips(self, visualize(self, self._text), width, None, style, pad=True)
            self._looks = looks
        return self._strips

    def _told(self, source: SourceView, width: int) -> Text:
        empty = Text(source.note or "no Python frame of the program here", "dim")
        return self._syntax(source, width) if source.lines else empty

    def _syntax(self, source: SourceView, width: int) -> Text:
        dark = self.app.current_theme.dark
        theme = "ansi_dark" if self.app.no_color else "one-dark" if dark else "default"
        code = _groundless(
            Syntax("", "python", theme=theme, background_color="default").highlight(
                figures.clean("\n".join(line.expandtabs(4) for line in source.lines))
            )
        )
        text = Text(no_wrap=True)
        for number, line in enumerate(code.split("\n", allow_blank=True)[: len(source.lines)], source.first):
            here = number == source.line
            row = Text("▶" if here else " ", color(self.app, "accent"))
            row.append(f"{number:>5} ", "bold" if here else "dim")
            row.append_text(line)
            if here:
                row.pad_right(max(width - 1 - len(row), 0))
                row.stylize(f"on {color(self.app, 'surface-lighten-2')}")
            text.append_text(row)
            text.append("\n")
        text.rstrip()
        return text

    def on_resize(self) -> None:
        """Where somebody has scrolled to something else, that stays."""
        if not self._moved:
            self._aim()


def _groundless(code: Text) -> Text:
    """The pane's own background lies under every word."""
    spans = []
    for span in code.spans:
        look = span.style if isinstance(span.style, Style) else Style.parse(span.style)
        spans.append(Span(span.start, span.end, Style(color=look.color, bold=look.bold, italic=look.italic)))
    return Text(code.plain, spans=spans, no_wrap=True)
