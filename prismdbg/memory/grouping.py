"""Live blocks in groups: by size, stack, age, module or operator, largest first; also as a tree."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import PurePath

import numpy as np

from prismdbg.memory.live import Live
from prismdbg.memory.trace import Ints, Site
from prismdbg.model.frame import Frame, own_frames, source_of

BEFORE = "before start moment"
BACKEND = "backend"
_AGES = ((0, "allocated in this step"), (1, "1 step old"), (9, "2 to 9 steps old"), (99, "10 to 99 steps old"))
_INNER, _OUTER = 4, 2  # of a deep stack in its label: where a block was made, and which line of the script led there
_OLDEST = "100 steps or older"


class By(StrEnum):
    SIZE = "size"
    STACK = "stack"
    AGE = "age"
    MODULE = "module"
    OP = "op"


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One group. `rows`: its allocations, oldest first. `frames`: grouped by stack, that of one of them.
    differ: others have more frames of the program, or other ones, in the middle that the label leaves out."""

    label: str
    size_bytes: int
    blocks: int
    rows: Ints
    frames: tuple[Frame, ...] = ()
    differ: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A group and the groups inside it."""

    label: str
    size_bytes: int
    blocks: int
    children: tuple[Node, ...]


def grouped(live: Live, by: By) -> list[Entry]:
    """Largest first. Blocks from before with no known maker, and the backend's own, are groups of their own."""
    if not len(live):
        return []
    keys, labels, frames, differ = _keys(live, by)
    found, place = np.unique(keys, return_inverse=True)
    order = np.argsort(place, kind="stable")
    bounds = np.searchsorted(place[order], np.arange(len(found) + 1))
    entries = []
    for number, key in enumerate(found):
        rows = live.rows[order[bounds[number] : bounds[number + 1]]]
        entries.append(
            Entry(
                label=labels[int(key)],
                size_bytes=int(live.trace.size_bytes[rows].sum()),
                blocks=len(rows),
                rows=rows,
                frames=frames.get(int(key), ()),
                differ=int(key) in differ,
            )
        )
    return sorted(entries, key=lambda entry: (-entry.size_bytes, entry.label))


def nested(live: Live, bys: Sequence[By]) -> tuple[Node, ...]:
    """A tree: groups by the first, in each of them by the next."""
    if not bys:
        return ()
    return tuple(
        Node(
            label=entry.label,
            size_bytes=entry.size_bytes,
            blocks=entry.blocks,
            children=()
            if entry.label in (BEFORE, BACKEND)
            else nested(Live(trace=live.trace, rows=entry.rows, at_row=live.at_row), bys[1:]),
        )
        for entry in grouped(live, bys[0])
    )


def _keys(live: Live, by: By) -> tuple[Ints, dict[int, str], dict[int, tuple[Frame, ...]], set[int]]:
    """A number for the group of each block, the groups' labels, stacks, and those whose stacks differ."""
    frames: dict[int, tuple[Frame, ...]] = {}
    differ: set[int] = set()
    if by is By.SIZE:
        keys = live.sizes.copy()
        labels = {int(size): f"{int(size)} bytes each" for size in np.unique(keys)}
    elif by is By.AGE:
        keys = np.searchsorted([limit for limit, _ in _AGES], _steps_old(live))
        labels = dict(enumerate([*(label for _, label in _AGES), _OLDEST]))
    else:
        keys, labels, frames, differ = _by_site(live, by)
    unknown = live.is_before & (live.trace.site[live.rows] == 0)  # of a rank traced from its start, makers are known
    keys = np.where(unknown, -2, keys)
    keys = np.where(live.is_backend, -1, keys)
    return keys, {**labels, -2: BEFORE, -1: BACKEND}, frames, differ


def _steps_old(live: Live) -> Ints:
    row = min(live.at_row, len(live.trace) - 1)
    ages: Ints = live.trace.step[row] - live.trace.step[live.rows]
    return ages


def _by_site(live: Live, by: By) -> tuple[Ints, dict[int, str], dict[int, tuple[Frame, ...]], set[int]]:
    """Sites are few: each is named once."""
    sites, place = np.unique(live.trace.site[live.rows], return_inverse=True)
    numbers: dict[str, int] = {}
    frames: dict[int, tuple[Frame, ...]] = {}
    differ: set[int] = set()
    of_site = np.zeros(len(sites), dtype=np.int64)
    for at, number in enumerate(sites):
        site = live.trace.site_at(int(number))
        key = numbers.setdefault(_label(site, by), len(numbers))
        of_site[at] = key
        if by is By.STACK:
            first = frames.setdefault(key, site.frames)
            if own_frames(first) != own_frames(site.frames):
                differ.add(key)
    return of_site[place], {key: label for label, key in numbers.items()}, frames, differ


def _label(site: Site, by: By) -> str:
    if by is By.MODULE:
        return site.module or "no module"
    if by is By.OP:
        return site.op or "no operator"
    return stack_label(site.frames)


def stack_label(
    frames: tuple[Frame, ...], *, whole_path: bool = True, inner: int = _INNER, outer: int = _OUTER, gap: str = "..."
) -> str:
    """The program's own frames: what lies inside a library is told by the operator. `gap`: in place of those between
    the `inner` innermost and the `outer` outermost ones."""
    own = own_frames(frames) or tuple(filter(None, [source_of(frames)]))
    if not own:
        return "no Python stack"
    callers = [f"{PurePath(frame.filename).name}:{frame.line}" for frame in own]
    if len(own) > inner + outer:
        callers[inner:-outer] = [gap]
    innermost = str(own[0]) if whole_path else f"{callers[0]} in {own[0].name}"
    return " < ".join([innermost, *callers[1:]])
