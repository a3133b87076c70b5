"""Where ranks stood when their stacks were taken, in words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from prismdbg.capsule.stacks import FROM_OUTSIDE, RankStacks
from prismdbg.model.frame import own_frames, packaged

_SHOWN = 8  # callers
_RANKS_SHOWN = 32


def stack_position(stacks: RankStacks) -> str:
    """`train.py:27 in load, in requests/api.py:60 in get, holding Python's lock`; empty where it is not known."""
    if stacks.source is None:
        return ""
    innermost = stacks.frames[0]
    inside = f", in {packaged(innermost)}" if innermost != stacks.source else ""
    return f"{stacks.source}{inside}{', holding the GIL' if stacks.threads[0].holds_gil else ''}"


def stack_line(stacks: RankStacks) -> str:
    """The callers of where it stands, the program's own, innermost first; empty where there is none."""
    callers = [str(frame) for frame in own_frames(stacks.frames)[1:]]
    if len(callers) > _SHOWN:
        callers[_SHOWN:] = ["..."]
    return f"called from {' < '.join(callers)}" if callers else ""


def position_lines(stacks: Mapping[int, RankStacks]) -> Iterator[str]:
    """One rank a line; with what kept it from being looked at."""
    for rank, found in sorted(stacks.items())[:_RANKS_SHOWN]:
        if where := stack_position(found):
            callers = stack_line(found)
            yield f"rank {rank} was at {where}{f', {callers}' if callers else ''}{_by(found)}"
        else:
            yield f"the position of rank {rank} is unknown: {found.problem or 'it ran no Python'}"
    if len(stacks) > _RANKS_SHOWN:
        yield f"and {len(stacks) - _RANKS_SHOWN} ranks more"


def _by(stacks: RankStacks) -> str:
    return "" if stacks.taken_by == FROM_OUTSIDE else f" (reported by the rank itself; {stacks.problem})"
