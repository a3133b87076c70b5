"""Texts behind the margin of a traceback: Python writes `  | ` before each line of an exception group's members.

A value of several lines is found only without them. Standard library only.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator

from prismdbg.capsule.secrets.shapes import Found

# Lines that follow each other, with the same margin; the last one may be empty.
_BEHIND_MARGIN = re.compile(r"^(?P<margin> {2,40}\| )[^\n]*+(?:\n(?P=margin)[^\n]*+)++", re.MULTILINE)


def found_behind_margins(text: str, find: Callable[[str], Iterable[Found]]) -> Iterator[Found]:
    """Yield what `find` sees in the lines behind each margin, as it stands in `text`: a value of several lines with
    the margins in it. Each line is searched once."""
    for block in _BEHIND_MARGIN.finditer(text) if " | " in text else ():
        width = len(block["margin"])
        lines = [line[width:] for line in block[0].split("\n")]
        starts = [0]  # of the lines in what is searched
        for line in lines[:-1]:
            starts.append(starts[-1] + len(line) + 1)
        for found in find("\n".join(lines)):
            if found.start >= 0 and found.value:
                start, last = (
                    block.start() + place + width * bisect_right(starts, place)
                    for place in (found.start, found.start + len(found.value) - 1)
                )
                yield Found(found.what, text[start : last + 1], start)
