"""Texts for a line of a terminal that is too short for them: whole parts are left out, never half of a word."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from rich.cells import cell_len

_PART = re.compile(r"[;,] ")


def cut(text: str, width: int) -> str:
    return text if len(text) <= width else text[: max(width - 1, 0)] + "…"


def cut_words(text: str, width: int) -> str:
    """Its first words, then `…` where some are left out. Only a first word that is too long itself is cut."""
    if cell_len(text) <= width:
        return text
    shown = ""
    for word in re.findall(r"\s*\S+", text):
        if cell_len(shown + word) > width - 2:
            break
        shown += word
    return f"{shown.rstrip(' ,;:·(')} …" if shown.strip() else cut(text, width)


def first_fitting(texts: Iterable[str], width: int) -> str:
    """The first one that fits; else the whole words of the last one that do."""
    last = ""
    for last in texts:
        if cell_len(last) <= width:
            return last
    return cut_words(last, width)


def clauses(text: str) -> Iterator[str]:
    """All of it, then without what follows its last `;`, and so on."""
    while text:
        yield text
        text = text.rpartition("; ")[0]


def parts(text: str) -> Iterator[str]:
    """All of it, then without its last part, and so on: parts end with `,` or `;`."""
    yield text
    for end in reversed([found.start() for found in _PART.finditer(text)]):
        yield text[:end]
