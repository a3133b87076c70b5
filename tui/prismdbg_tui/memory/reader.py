"""Reads a memory trace, away from the screen's thread: the curve, what is alive at a moment, what changed since one."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from prismdbg.capsule.memory_format import HEADER
from prismdbg.capsule.transfer import open_plain
from prismdbg.errors import PrismError, UsageError
from prismdbg.model.collective import Frame
from prismdbg.model.moment import Moment
from prismdbg.session.frames import own_frame
from prismdbg_tui.memory.view import CurveView, GroupBy, MemoryNode, MemoryView, largest_first

if TYPE_CHECKING:  # most capsules have no trace
    from prismdbg.memory.grouping import Entry
    from prismdbg.memory.live import Live
    from prismdbg.memory.trace import MemoryTrace

POINTS = 800
MOST_NODES = 200
MOST_CHILDREN = 50
MOST_FRAMES = 20  # of each end of a stack: more than the lines below the list have room for
NO_TRACE_HINT = "record with --memory, or `prismdbg debug`"
NO_TRACE_RECORDED = (
    "No memory trace.\n\n"
    "`prismdbg debug` replays the rank and traces its memory: key M or the command `memory`.\n\n"
    "From the start of a job: `prismdbg record --memory ...`"
)
NO_TRACE = (
    "No memory trace.\n\n"
    "While the rank is stopped, press M or type `memory`: the rank is replayed from the start moment to here, and "
    "operators, allocations and frees are traced. `trace on` traces from here on.\n\n"
    "From the start of a job: `prismdbg record --memory ...`"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryRequest:
    """`folder` None: there is no trace. look: where in it `at` is; None: at its end. since: changes since; of_a_step:
    that is the same place a step before. marked: one end of a difference that has no other end yet. is_live: the rank
    runs here, so that it can be traced."""

    folder: Path | None
    at: Moment | None
    look: Moment | None
    since: Moment | None
    by: GroupBy
    marked: Moment | None = None
    is_live: bool = True
    of_a_step: bool = False


_EMPTY = "The trace is empty: no allocation since it started."


class MemoryReader:
    """One trace at a time, opened again when it has grown."""

    def __init__(self) -> None:
        self._trace: MemoryTrace | None = None
        self._opened: tuple[Path, tuple[bytes, ...]] | None = None

    def look(self, request: MemoryRequest) -> MemoryView:
        if request.folder is None:
            return MemoryView(note=NO_TRACE if request.is_live else NO_TRACE_RECORDED)
        try:
            trace = self._open(request.folder)
            if not (refused := _refusal(trace, request)):
                return self._view(trace, request)
            kept = _kept_end(trace, request)
            return replace(self._view(trace, replace(request, since=None, marked=kept)), refused=refused)
        except PrismError as error:
            refused = f"memory: {error}\ntry: {error.hint}" if _ends(request) else ""
            return MemoryView(note=f"{error}\n{error.hint}", refused=refused)

    def _open(self, folder: Path) -> MemoryTrace:
        from prismdbg.memory.trace import open_trace

        written = _heads(folder)
        if self._trace is None or self._opened != (folder, written):
            self._trace, self._opened = open_trace(folder), (folder, written)
        return self._trace

    def _view(self, trace: MemoryTrace, request: MemoryRequest) -> MemoryView:
        from prismdbg.memory.difference import diff
        from prismdbg.memory.live import live_at
        from prismdbg.memory.peak import peak

        highest = peak(trace)
        if highest is None:
            return MemoryView(note=_EMPTY)
        at, since = request.at, request.since
        if at is not None and since is None and request.look is not None:  # of another moment nothing is known
            at = min(max(at, trace.begin), trace.end)
        if at is not None and request.look is None:  # an exception lies behind the collective that it is told with
            at = max(at, trace.end)
            if since is not None and request.of_a_step:
                since = Moment(since.step, since.collective, at.op)
        view = MemoryView(
            at=at,
            device=trace.device_name if trace.is_of_several else "",
            by=request.by,
            marked=request.marked,
            curve=_curve(trace, request, highest.moment),
            peak_bytes=highest.size_bytes,
            peak_text=_origin(trace, highest.row) if highest.allocation is not None else "",
            is_least=not trace.is_whole,
            uncounted_bytes=trace.uncounted_bytes,
        )
        if since is not None and at is not None and since != request.at:
            first, last = sorted((since, at))
            here = request.look or _behind(trace.end)
            found = diff(trace, *sorted((since, here)))
            nodes = _largest(_changed(_nodes(found.made, request.by), _nodes(found.gone, request.by)))
            return replace(view, since=first, at=last, growth_bytes=found.growth_bytes, nodes=nodes)
        live = live_at(trace, request.look)
        return replace(
            view,
            program_bytes=live.program_bytes,
            backend_bytes=live.backend_bytes,
            before_bytes=live.before_bytes,
            reserved_bytes=live.reserved_bytes,
            nodes=_largest(_nodes(live, request.by)),
        )


def _refusal(trace: MemoryTrace, request: MemoryRequest) -> str:
    """Why the trace has no such difference, and what to do; empty where it has."""
    ends = _ends(request)
    if not ends:
        return ""
    if not len(trace):
        return f"memory: {_EMPTY}\ntry: run on, and mark a moment then"
    try:
        trace.require(*ends, here=request.at if request.look is None else None)
    except UsageError as error:
        return f"memory: {error}\ntry: {error.hint}"
    return ""


def _kept_end(trace: MemoryTrace, request: MemoryRequest) -> Moment | None:
    """The first end of a difference, where it is the other one that the trace lacks: another one can be chosen."""
    first = request.since
    if first is None or request.of_a_step or not len(trace) or not trace.begin <= first <= trace.end:
        return None
    return first


def _ends(request: MemoryRequest) -> list[Moment]:
    """Those of a difference that are chosen."""
    ends = [end for end in (request.since, request.marked) if end is not None]
    if request.since is not None and request.look is not None:
        ends.append(request.look)
    return ends


def _behind(moment: Moment) -> Moment:
    return Moment(moment.step, moment.collective, moment.op + 1)


def _heads(folder: Path) -> tuple[bytes, ...]:
    """Of its segments, which have their whole length from the begin: how many records are there stands in their
    heads. What is no plain file has none, and is named when the trace is opened."""
    heads = []
    for path in sorted(folder.glob("memory.*.seg")):
        with contextlib.suppress(OSError), open_plain(path) as file:
            heads.append(file.read(HEADER.size))
    return tuple(heads)


def _largest(nodes: Sequence[MemoryNode]) -> tuple[MemoryNode, ...]:
    return tuple(largest_first(nodes)[:MOST_NODES])


def _changed(made: Sequence[MemoryNode], gone: Sequence[MemoryNode]) -> list[MemoryNode]:
    """What of the same name was allocated and freed says which of both it is."""
    both = {node.label for node in made} & {node.label for node in gone}
    named = [
        [replace(node, label=f"{word}: {node.label}") if node.label in both else node for node in nodes]
        for word, nodes in (("allocated", made), ("freed", gone))
    ]
    return [*named[0], *map(_negative, named[1])]


def _negative(node: MemoryNode) -> MemoryNode:
    children = tuple(map(_negative, node.children))
    return replace(node, size_bytes=-node.size_bytes, blocks=-node.blocks, children=children)


def _curve(trace: MemoryTrace, request: MemoryRequest, peak: Moment) -> CurveView:
    """A point stands for many records: the highest has the moment of its own highest one."""
    from prismdbg.memory.curve import curve

    found = curve(trace, points=POINTS)
    moments = [found.moment(point) for point in range(len(found))]
    moments[found.peak_point] = peak
    return CurveView(
        low_bytes=tuple(found.low_bytes.tolist()),
        high_bytes=tuple(found.high_bytes.tolist()),
        steps=found.step_points,
        moments=tuple(moments),
        peak=found.peak_point,
        here=len(found) - 1 if request.look is None else found.point_at(request.look),
        mark=None if (mark := request.since or request.marked) is None else found.point_at(mark),
    )


def _nodes(live: Live, by: GroupBy) -> list[MemoryNode]:
    """Two levels: what one groups by, and in it the lines of the program that made the blocks, by operator."""
    from prismdbg.memory.grouping import BACKEND, BEFORE, By, grouped

    return [
        MemoryNode(
            label=_label(entry),
            size_bytes=entry.size_bytes,
            blocks=entry.blocks,
            children=() if entry.label in (BEFORE, BACKEND) else _places(live.trace, entry.rows.tolist(), by),
            quiet=entry.label in (BEFORE, BACKEND),
        )
        for entry in grouped(live, By(by.value))
    ]


def _label(entry: Entry) -> str:
    """A stack by its own line and those that led there: what a step leaks may come from a line that is gone through
    twice. The pane cuts it to its rows, and shows all of the chosen one: only of stacks that differ in their middle,
    and of one that no few lines have room for, that is left out here."""
    from prismdbg.memory.grouping import stack_label

    if not entry.frames:
        return entry.label
    if entry.differ:
        return stack_label(entry.frames, whole_path=False, gap="…")
    return stack_label(entry.frames, whole_path=False, inner=MOST_FRAMES, outer=MOST_FRAMES, gap="…")


def _places(trace: MemoryTrace, rows: Sequence[int], by: GroupBy) -> tuple[MemoryNode, ...]:
    """The blocks of one group by operator and line; of a stack the line is known. Sites are few, blocks are many."""
    sites: dict[int, list[int]] = {}
    for row in rows:
        entry = sites.setdefault(int(trace.site[row]), [0, 0, row])
        entry[0] += int(trace.size_bytes[row])
        entry[1] += 1
    found: dict[str, tuple[int, int]] = {}
    for size, count, row in sites.values():
        label = _op(trace, row) if by is GroupBy.STACK else _origin(trace, row)
        known = found.get(label, (0, 0))
        found[label] = known[0] + size, known[1] + count
    nodes = [MemoryNode(label=label, size_bytes=size, blocks=count) for label, (size, count) in found.items()]
    return tuple(largest_first(nodes)[:MOST_CHILDREN])


def _op(trace: MemoryTrace, row: int) -> str:
    """`aten::mm in layers.0`."""
    site = trace.site_at(int(trace.site[row]))
    return f"{site.op or site.outer_op or 'an allocation'}{f' in {site.module}' if site.module else ''}"


def _origin(trace: MemoryTrace, row: int) -> str:
    """`aten::mm at model.py:61 in forward`."""
    site = trace.site_at(int(trace.site[row]))
    return f"{site.op or site.outer_op or 'an allocation'}{_line(site.frames)}"


def _line(frames: tuple[Frame, ...]) -> str:
    if not frames:
        return ""
    frame = frames[own_frame(frames)]
    return f" at {frame.filename.rsplit('/', 1)[-1]}:{frame.line} in {frame.name}"
