"""What is shown may not steer the terminal: names, code and output come from a capsule or a rank."""

from __future__ import annotations

from rich.cells import cell_len
from rich.segment import Segment
from textual.color import Color
from textual.filter import LineFilter


class Printable(LineFilter):
    """The last to see a line before it is written, on a terminal, in a browser or in a picture. Each character keeps
    its width: what has none is left out."""

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        if all(segment.control or segment.text.isprintable() for segment in segments):
            return segments
        return [segment if segment.control else Segment(printable(segment.text), segment.style) for segment in segments]


def printable(text: str) -> str:
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else "\ufffd" * cell_len(c) for c in text)
