"""A long traceback in a few lines: the program's own frame and the exceptions."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise

from prismdbg.model.frame import Frame, source_index

_SHORT = 6  # lines: not folded
_MOST_TEXT = 2  # lines of what an exception says
_FRAME = re.compile(r'  File "(?P<file>.+)", line (?P<line>\d{1,9}), in (?P<name>.+)')
_TITLE = "Traceback (most recent call last):"
_TITLES = (_TITLE, f"Original {_TITLE}")  # the second in the text of what a DataLoader's worker raised
_GROUP = f"Exception Group {_TITLE}"
_IN_GROUP = re.compile(r"\s*\| (?P<text>[^\s|+].*)")  # what a group or one of its exceptions says, or a title
_REPEATED = re.compile(r"  \[Previous line repeated (?P<more>\d{1,9}) more times?\]")


def folded(lines: Sequence[str]) -> tuple[str, ...]:
    """Of each exception in it, also of those before the last one, what it says; of the last one also the program's own
    line. `… 23 frames` for what is left out. Of an exception group what its exceptions say. What is no traceback of
    Python keeps its last lines."""
    if len(lines) <= _SHORT:
        return tuple(lines)
    if any(line.strip(" +|") == _GROUP for line in lines):
        return tuple(_of_group(lines))
    titles = [at for at, line in enumerate(lines) if line.strip() in _TITLES]
    frames = _frames(lines, titles[-1]) if titles else []
    if not frames:
        return (_left_out(len(lines) - _SHORT + 1, "line"), *lines[1 - _SHORT :])
    shown = list(_text(lines[: titles[0]]))
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
    if before := _count(lines, frames[:own]):
        yield _left_out(before, "frame")
    yield from (line for line in lines[frames[own][1] : frames[own][2]] if line.strip(" ^~"))
    if after := _count(lines, frames[own + 1 :]):
        yield _left_out(after, "frame")


def _count(lines: Sequence[str], frames: Sequence[tuple[Frame, int, int]]) -> int:
    """With those of a recursion, which Python writes as one line."""
    of_frames = (line for _, begin, end in frames for line in lines[begin:end])
    return len(frames) + sum(int(found["more"]) for line in of_frames if (found := _REPEATED.fullmatch(line)))


def _text(lines: Sequence[str]) -> Iterator[str]:
    """The last line, too: what is passed on from elsewhere ends with the reason."""
    if len(lines) <= _MOST_TEXT + 1:
        yield from lines
        return
    yield from lines[: _MOST_TEXT - 1]
    yield _left_out(len(lines) - _MOST_TEXT, "line")
    yield lines[-1]


def _of_group(lines: Sequence[str]) -> Iterator[str]:
    """The group comes before its exceptions, and before what was raised from it."""
    end = 1 + max(at for at, line in enumerate(lines) if line.lstrip().startswith(("|", "+")))
    said = [line for line in lines[:end] if (found := _IN_GROUP.fullmatch(line)) and found["text"] not in _TITLES]
    shown = said[: _SHORT - 2]
    yield from shown
    yield _left_out(end - len(shown), "line")
    later = [at for at in range(end, len(lines)) if lines[at].strip() in _TITLES]
    if later and (frames := _frames(lines, later[-1])):
        yield from (*_last(lines, frames), *_text(lines[frames[-1][2] :]))
    else:
        yield from _text(lines[end:])


def _left_out(number: int, what: str) -> str:
    return f"  … {number} {what}{'' if number == 1 else 's'}"
