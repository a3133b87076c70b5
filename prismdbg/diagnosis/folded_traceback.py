"""A long traceback in a few lines: the program's own frame and the exceptions."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise

from prismdbg.model.frame import Frame, source_index

_SHORT = 6  # lines: not folded
_MOST_TEXT = 2  # lines of what an exception says
_FRAME = re.compile(r'  File "(?P<file>.+)", line (?P<line>\d+), in (?P<name>.+)')
_TITLE = "Traceback (most recent call last):"


def folded(lines: Sequence[str]) -> tuple[str, ...]:
    """Of each exception in it, also of those before the last one, what it says; of the last one also the program's own
    line. `… 23 frames` for what is left out. What is no traceback of Python keeps its last lines."""
    if len(lines) <= _SHORT:
        return tuple(lines)
    titles = [at for at, line in enumerate(lines) if line.strip() == _TITLE]
    frames = _frames(lines, titles[-1]) if titles else []
    if not frames:
        return (_left_out(len(lines) - _SHORT + 1, "line"), *lines[1 - _SHORT :])
    shown: list[str] = []
    for begin, end in pairwise(titles):
        earlier = _frames(lines, begin)
        shown += _text(lines[earlier[-1][2] if earlier else begin + 1 : end])
    return (*shown, *_last(lines, frames), *_text(lines[frames[-1][2] :]))


def _frames(lines: Sequence[str], title: int) -> list[tuple[Frame, int, int]]:
    """Each with where its lines begin and end."""
    found: list[tuple[Frame, int, int]] = []
    for at in range(title + 1, len(lines)):
        if named := _FRAME.fullmatch(lines[at]):
            found.append((Frame(named["file"], int(named["line"]), named["name"]), at, at + 1))
        elif found and lines[at].startswith("  "):
            found[-1] = (found[-1][0], found[-1][1], at + 1)
        else:
            break
    return found


def _last(lines: Sequence[str], frames: Sequence[tuple[Frame, int, int]]) -> Iterator[str]:
    """The own frame, and how many are before and after it."""
    own = len(frames) - 1 - source_index(tuple(frame for frame, _, _ in reversed(frames)))
    if own:
        yield _left_out(own, "frame")
    yield from (line for line in lines[frames[own][1] : frames[own][2]] if line.strip(" ^~"))
    if after := len(frames) - own - 1:
        yield _left_out(after, "frame")


def _text(lines: Sequence[str]) -> Iterator[str]:
    yield from lines[:_MOST_TEXT]
    if more := len(lines[_MOST_TEXT:]):
        yield _left_out(more, "line")


def _left_out(number: int, what: str) -> str:
    return f"  … {number} {what}{'' if number == 1 else 's'}"
