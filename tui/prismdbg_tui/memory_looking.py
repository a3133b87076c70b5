"""Reads a memory trace, away from the screen's thread: the curve, what is alive at a moment, what changed since one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from prismdbg.errors import PrismError
from prismdbg.model.collective import Frame
from prismdbg.model.moment import Moment
from prismdbg.session.frames import own_frame
from prismdbg_tui.memory_view import CurveView, GroupBy, MemoryNode, MemoryView

if TYPE_CHECKING:  # most capsules have no trace
    from prismdbg.memory.live import Live
    from prismdbg.memory.trace import MemoryTrace

POINTS = 800
MOST_NODES = 200
MOST_CHILDREN = 50
NO_TRACE = (
    "No memory trace here.\n\n"
    "While the rank runs:   trace on   (at the console), then go on: every operator, allocation and free\n"
    "between collectives is traced from there.\n\n"
    "From the start of a job:   prismdbg record --memory ..."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryRequest:
    """`folder` None: there is no trace. `since`: a difference from there to `at`."""

    folder: Path | None
    at: Moment | None
    since: Moment | None
    by: GroupBy


class MemoryLooker:
    """One trace at a time, opened again when it has grown."""

    def __init__(self) -> None:
        self._trace: MemoryTrace | None = None
        self._opened: tuple[Path, int] | None = None

    def look(self, request: MemoryRequest) -> MemoryView:
        if request.folder is None:
            return MemoryView(note=NO_TRACE)
        try:
            return self._view(self._open(request.folder), request)
        except PrismError as error:
            return MemoryView(note=f"{error}\n{error.hint}")

    def _open(self, folder: Path) -> MemoryTrace:
        from prismdbg.memory.trace import open_trace

        size = sum(path.stat().st_size for path in folder.glob("*") if path.is_file())
        if self._trace is None or self._opened != (folder, size):
            self._trace, self._opened = open_trace(folder), (folder, size)
        return self._trace

    def _view(self, trace: MemoryTrace, request: MemoryRequest) -> MemoryView:
        from prismdbg.memory.difference import diff
        from prismdbg.memory.live import live_at
        from prismdbg.memory.peak import peak

        if not len(trace):
            return MemoryView(note="The trace is empty: nothing was allocated since it began.")
        highest = peak(trace)
        view = MemoryView(
            at=request.at,
            since=request.since,
            by=request.by,
            curve=_curve(trace, request),
            peak_bytes=highest.bytes,
            peak_moment=highest.moment,
            peak_text=_origin(trace, highest.row),
        )
        if request.since is not None and request.at is not None:
            first, last = sorted((request.since, request.at))
            found = diff(trace, first, last)
            made, gone = _nodes(trace, found.made, request.by), _nodes(trace, found.gone, request.by)
            lost = tuple(_negative(node) for node in gone)
            return _with(view, since=first, at=last, growth_bytes=found.growth_bytes, nodes=_largest((*made, *lost)))
        live = live_at(trace, request.at)
        return _with(
            view,
            program_bytes=live.program_bytes,
            backend_bytes=live.backend_bytes,
            before_bytes=live.before_bytes,
            nodes=_largest(_nodes(trace, live, request.by)),
        )


def _with(view: MemoryView, **changes: object) -> MemoryView:
    from dataclasses import replace

    return replace(view, **changes)  # type: ignore[arg-type]


def _largest(nodes: Sequence[MemoryNode]) -> tuple[MemoryNode, ...]:
    return tuple(sorted(nodes, key=lambda node: -abs(node.size_bytes))[:MOST_NODES])


def _negative(node: MemoryNode) -> MemoryNode:
    return MemoryNode(
        label=node.label,
        size_bytes=-node.size_bytes,
        blocks=node.blocks,
        children=tuple(map(_negative, node.children)),
        quiet=node.quiet,
    )


def _curve(trace: MemoryTrace, request: MemoryRequest) -> CurveView:
    from prismdbg.memory.curve import curve

    found = curve(trace, points=POINTS)
    rows = [int(row) for row in found.rows]
    return CurveView(
        low_bytes=tuple(int(value) for value in found.low_bytes),
        high_bytes=tuple(int(value) for value in found.high_bytes),
        steps=tuple((int(step), _point(rows, int(row))) for step, row in found.step_rows),
        moments=tuple(found.moments(point) for point in range(len(rows))),
        peak=int(found.peak_point),
        here=len(rows) - 1 if request.at is None else _point(rows, trace.row_at(request.at)),
        mark=None if request.since is None else _point(rows, trace.row_at(request.since)),
    )


def _point(rows: list[int], row: int) -> int:
    from bisect import bisect_right

    return max(bisect_right(rows, row) - 1, 0)


def _nodes(trace: MemoryTrace, live: Live, by: GroupBy) -> list[MemoryNode]:
    """Two levels: what one groups by, and in it where the blocks were made."""
    from prismdbg.memory.grouping import By, grouped

    return [
        MemoryNode(
            label=entry.label,
            size_bytes=int(entry.bytes),
            blocks=int(entry.blocks),
            children=_places(trace, entry.rows),
            quiet=entry.label.startswith(("before A", "backend")),
        )
        for entry in grouped(live, By[by.name])
    ]


def _places(trace: MemoryTrace, rows: Sequence[int]) -> tuple[MemoryNode, ...]:
    """The blocks of one entry by the line of the program that made them."""
    found: dict[str, list[int]] = {}
    for row in rows:
        label = _origin(trace, int(row))
        entry = found.setdefault(label, [0, 0])
        entry[0] += int(trace.size_bytes[row])
        entry[1] += 1
    nodes = [MemoryNode(label=label, size_bytes=size, blocks=count) for label, (size, count) in found.items()]
    return tuple(sorted(nodes, key=lambda node: -node.size_bytes)[:MOST_CHILDREN])


def _origin(trace: MemoryTrace, row: int) -> str:
    """`aten::mm at model.py:61 in forward`."""
    site = trace.site(int(trace.site[row]))
    return f"{site.op or site.outer_op or 'an allocation'}{_line(site.frames)}"


def _line(frames: tuple[Frame, ...]) -> str:
    if not frames:
        return ""
    frame = frames[own_frame(frames)]
    return f" at {frame.filename.rsplit('/', 1)[-1]}:{frame.line} in {frame.name}"
