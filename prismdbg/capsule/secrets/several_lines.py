"""Secrets of several lines in texts that are kept line by line, as a traceback is: each note of an exception is as many
texts as it has lines. Standard library only."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate

from prismdbg.capsule.secrets.shapes import Found

_NO_PART = re.compile(r"(?: {2,40}\| )?\s*")  # what a line of a value begins with: the margin of a group, and spaces


def parts_in(lines: Sequence[str], find: Callable[[str], Iterable[Found]]) -> list[list[Found]]:
    """Return for each of `lines` what of it belongs to a secret that `find` sees in all of them together."""
    parts: list[list[Found]] = [[] for _ in lines]
    starts = [0, *accumulate(map(len, lines))]
    for found in find("".join(lines)) if len(lines) > 1 else ():
        stop = found.start + len(found.value)
        at = bisect_right(starts, found.start) - 1 if found.start >= 0 else len(lines)
        while at < len(lines) and starts[at] < stop:
            parts[at] += _part(found, lines[at], max(found.start - starts[at], 0), stop - starts[at])
            at += 1
    return parts


def _part(found: Found, line: str, start: int, stop: int) -> Iterator[Found]:
    """From `start` to `stop` of a line, without what is around it there."""
    end = len(line[:stop].rstrip())
    if start == 0 and (around := _NO_PART.match(line, 0, end)) is not None:
        start = around.end()
    if start < end:
        yield Found(found.what, line[start:end], start)
