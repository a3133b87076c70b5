"""Lines that are longer than a pane, cut at blanks so that what goes on stands below what it belongs to."""

from __future__ import annotations

import re

from rich.cells import cell_len
from rich.text import Text

from prismdbg_tui.drawing import figures

_WORD, _FIELD = re.compile(r"\s*+\S++"), re.compile(r"\s*+\S++(?: \S++)*+")
_HAS_FIELDS = re.compile(r"\S {2,}\S")  # such as `nan 1  inf 0`
_SEPARATOR = 2  # blanks between the elements of an array
_LEAST = 20  # cells of text; where there are fewer, nothing hangs


def wrapped(line: str, width: int) -> list[str]:
    """Lines of at most `width` cells, as far as blanks allow: the second and later ones begin where the first one
    does, and elements of a printed array keep their columns."""
    if cell_len(line) <= width:
        return [line]
    indent = len(line) - len(line.lstrip())
    hang = " " * (indent + line[indent:].startswith("["))
    if width - len(hang) < _LEAST:
        hang = ""
    lines = [""]
    for piece in (_FIELD if _HAS_FIELDS.search(line) else _WORD).findall(line.rstrip()):
        if lines[-1] and cell_len(lines[-1]) + cell_len(piece) > width:
            blanks = len(piece) - len(piece.lstrip())
            column = blanks - _SEPARATOR if blanks > 1 else 0
            lines.append(hang + " " * max(column, 0) + piece.lstrip())
        else:
            lines[-1] += piece
    return lines


def cut_words(text: Text, width: int) -> Text:
    """As `figures.cut_words`, in its colours."""
    shown = figures.cut_words(text.plain, width)
    if shown == text.plain:
        return text
    kept = len(shown.removesuffix("…"))
    return text[:kept] + Text("…") if text.plain.startswith(shown[:kept]) else text[: kept - 1] + Text(" …")
