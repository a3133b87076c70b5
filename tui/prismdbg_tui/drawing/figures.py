"""Numbers as people read them, each of bounded width."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime

from rich.cells import cell_len

from prismdbg.model.durations import brief
from prismdbg.model.sizes import size as size

_BARS = "▁▂▃▄▅▆▇█"


def duration(time_ns: float) -> str:
    """`14.7 ms`; `3 min 20 s` from a minute on."""
    if time_ns >= 60e9:
        minutes, seconds = divmod(int(time_ns / 1e9), 60)
        return f"{minutes} min {seconds} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"
    return brief(time_ns)


def count(number: int) -> str:
    """`1,000,000`."""
    return f"{number:,}"


def number(value: object) -> str:
    """A statistic or an element."""
    if value is None:
        return "-"
    return f"{value:.5g}" if isinstance(value, float) else str(value)


def bar(fraction: float) -> str:
    """One cell, never empty."""
    return _BARS[max(0, min(7, int(fraction * 8)))]


def clean(text: str) -> str:
    """What came from a capsule or a rank may not steer the terminal."""
    return "".join(c if c.isprintable() or c == "\n" else " " if c == "\t" else "\ufffd" for c in text)


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


def ranks(members: tuple[int, ...]) -> str:
    """`0-3`, `0 2 4`, or `8 ranks` where that would be long."""
    if len(members) > 2 and members == tuple(range(members[0], members[-1] + 1)):
        return f"{members[0]}-{members[-1]}"
    text = " ".join(map(str, members))
    return text if len(text) <= 12 else f"{len(members)} ranks"


def when(time_ns: int) -> str:
    """In universal time, to the second: the same on every machine."""
    return f"{datetime.fromtimestamp(time_ns / 1e9, UTC):%Y-%m-%d %H:%M:%S} UTC"


def plural(number: int, word: str) -> str:
    """`1 stop`, `3 stops`."""
    return f"{count(number)} {word}{'' if number == 1 else 's'}"
