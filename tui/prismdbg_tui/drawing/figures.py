"""Numbers as people read them, each of bounded width."""

from __future__ import annotations

from datetime import UTC, datetime
from math import ceil, log10

from prismdbg.model.durations import brief, unit_of
from prismdbg.model.sizes import size as size
from prismdbg.render.fitting import called as called
from prismdbg.render.fitting import clauses as clauses
from prismdbg.render.fitting import cut as cut
from prismdbg.render.fitting import cut_words as cut_words
from prismdbg.render.fitting import first_fitting as first_fitting
from prismdbg.render.fitting import fitted_table as fitted_table
from prismdbg.render.fitting import parts as parts

_BARS = "▁▂▃▄▅▆▇█"
_MOST_DIGITS = 6


def duration(time_ns: float) -> str:
    """`14.7 ms`; `3 min 20 s` from a minute on."""
    if time_ns >= 60e9:
        minutes, seconds = divmod(int(time_ns / 1e9), 60)
        return f"{minutes} min {seconds} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"
    return brief(time_ns)


def span(begin_ns: float, end_ns: float) -> str:
    """`2 s to 3.5 s`; of a short one with as many digits as tell its ends apart: `2.47 s to 2.49 s`."""
    begin, end = duration(begin_ns), duration(end_ns)
    if begin == end and begin_ns != end_ns:
        unit_ns = 1_000_000_000 if begin_ns >= 60e9 else unit_of(begin_ns)[1]
        digits = min(max(ceil(log10(2 * unit_ns / (end_ns - begin_ns)) - 1e-6), 0), _MOST_DIGITS)
        begin, end = _exact(begin_ns, digits), _exact(end_ns, digits)
    return f"{begin} to {end}"


def _exact(time_ns: float, digits: int) -> str:
    if time_ns < 60e9:
        unit, unit_ns = unit_of(time_ns)
        return f"{time_ns / unit_ns:.{digits}f} {unit}"
    minutes, seconds = divmod(time_ns / 1e9, 60)
    hours = f"{minutes // 60:.0f} h " if minutes >= 60 else ""
    return f"{hours}{minutes % 60:.0f} min {seconds:.{digits}f} s"


def count(number: int) -> str:
    """`1,000,000`."""
    return f"{number:,}"


def number(value: object) -> str:
    """A statistic or an element."""
    if value is None:
        return "-"
    return f"{value:.5g}" if isinstance(value, float) else str(value)


def percent(share: float) -> str:
    """`61%`; what is there is never `0%`."""
    return "<1%" if 0 < share < 0.005 else f"{share:.0%}"


def bar(fraction: float) -> str:
    """One cell, never empty."""
    return _BARS[max(0, min(7, int(fraction * 8)))]


def clean(text: str) -> str:
    """What came from a capsule or a rank may not steer the terminal."""
    return "".join(c if c.isprintable() or c == "\n" else " " if c == "\t" else "\ufffd" for c in text)


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
