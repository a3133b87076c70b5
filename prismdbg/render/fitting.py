"""Texts for a line of a terminal that is too short for them: whole parts are left out, never half of a word."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from rich.cells import cell_len

from prismdbg.diagnosis.verdict import without_folders

_PART = re.compile(r"[;,] ")
_LAST_COLUMN = re.compile(r"(.*\S {2,}|  +)(\S.*)")


def cut(text: str, width: int) -> str:
    return text if len(text) <= width else text[: max(width - 1, 0)] + "…"


def cut_words(text: str, width: int) -> str:
    """Its first words, then `…` where some are left out. Only a first word that is too long itself is cut."""
    if cell_len(text) <= width:
        return text
    shown = ""
    for word in re.findall(r"\s*+\S++", text.rstrip()):
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
    """All of it, then without what follows its last `;`, and so on, with `…` in its place."""
    end = ""
    while text:
        yield text + end
        text, end = text.rpartition("; ")[0], " …"


def parts(text: str) -> Iterator[str]:
    """All of it, then without its last part, and so on: parts end with `,` or `;`."""
    yield text
    for end in reversed([found.start() for found in _PART.finditer(text)]):
        yield text[:end]


def called(stack: str, width: int) -> str:
    """A stack whose frames are `innermost < ... < outermost`, without frames in its middle where there is no room: the
    program's own ones are at its end."""
    first, *callers = stack.split(" < ")
    short = first.partition(" in ")[0]
    ends = [" < ".join(callers[skip:]) for skip in range(1, len(callers))]
    fewer = [f"{begin} < … < {end}" for begin in (first, short) for end in ends[:-1]]
    fewer += [f"{short} … {end}" for end in ends]
    if len(callers) == 1:
        fewer = [f"{short} < {callers[0]}"]
    fits = next((text for text in (stack, *fewer) if len(text) <= width), "")
    return fits or cut(stack, width)


def fitted_table(text: str, width: int) -> str:
    """A table whose last column is a stack, each row in a line of `width` cells: where one is too long, all stacks lose
    their folders, and those that still are lose frames in their middle."""
    if all(cell_len(row) <= width for row in text.split("\n")):
        return text
    return "\n".join(_fitted_row(without_folders(row), width) for row in text.split("\n"))


def _fitted_row(row: str, width: int) -> str:
    if cell_len(row) <= width or (found := _LAST_COLUMN.fullmatch(row)) is None:
        return row
    before, stack = found.groups()
    return before + called(stack, max(width - cell_len(before), 1))
