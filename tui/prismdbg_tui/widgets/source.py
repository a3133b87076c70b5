"""Source lines around where a frame stands, with the line marked."""

from __future__ import annotations

from pathlib import PurePath

from rich.style import Style
from rich.syntax import Syntax
from rich.text import Span, Text

from prismdbg_tui.drawing import figures
from prismdbg_tui.drawing.colors import color
from prismdbg_tui.session.views import SourceView
from prismdbg_tui.session.visible_panes import numbered
from prismdbg_tui.widgets.pane import Pane

_ABOVE = 0.4  # how much of the pane lies above the marked line


class Source(Pane):
    def __init__(self) -> None:
        super().__init__("source", "Source")
        self._shown: SourceView | None = None
        self._aimed = 0.0  # how far it was scrolled for the marked line
        self._to_aim = False  # the text is put, not laid out: how far it scrolls is still that of the text before

    def show(self, source: SourceView) -> None:
        if source == self._shown:
            return
        self._shown = source
        name = PurePath(source.filename).name
        place = f"{name}:{source.line} {source.function}".replace("[", r"\[") if source.line else "Source"
        self.border_title = numbered("source", place)
        if not source.lines:
            self.put(Text(source.note or "no Python frame of the program here", "dim"), is_empty=True)
            return
        self._to_aim = True
        self.put(self._syntax(source), source.note)
        self.call_after_refresh(self._show_line)

    def watch_virtual_size(self) -> None:
        """The text is laid out: only now can it be scrolled as far as the marked line."""
        if self._to_aim:
            self.call_after_refresh(self._show_line)

    def again(self) -> None:
        """In the theme's colours of now."""
        if self._shown is not None and self._shown.lines:
            self.put(self._syntax(self._shown), self._shown.note)

    def _syntax(self, source: SourceView) -> Text:
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
                row.pad_right(max(self.scrollable_content_region.width - 1 - len(row), 0))
                row.stylize(f"on {color(self.app, 'surface-lighten-2')}")
            text.append_text(row)
            text.append("\n")
        text.rstrip()
        return text

    def _show_line(self) -> None:
        if self._shown is not None:
            above = int(self.size.height * _ABOVE)
            target = max(self._shown.line - self._shown.first - above, 0)
            self.scroll_to(y=target, animate=False, immediate=True, force=True)
            self._aimed = self.scroll_y
            self._to_aim = self.scroll_y != min(target, max(len(self._shown.lines) - self.size.height, 0))

    def on_resize(self) -> None:
        """Where somebody has scrolled to something else, that stays."""
        moved = self.scroll_y != self._aimed
        self.again()
        if not moved:
            self._show_line()


def _groundless(code: Text) -> Text:
    """The pane's own background lies under every word."""
    spans = []
    for span in code.spans:
        look = span.style if isinstance(span.style, Style) else Style.parse(span.style)
        spans.append(Span(span.start, span.end, Style(color=look.color, bold=look.bold, italic=look.italic)))
    return Text(code.plain, spans=spans, no_wrap=True)
