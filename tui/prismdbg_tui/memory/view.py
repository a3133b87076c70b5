"""The memory pane as values: the curve, what is alive at a moment as a tree, and a difference between two moments."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from prismdbg.model.moment import Moment


class GroupBy(StrEnum):
    """How live allocations are put together; the pane's key goes from one to the next."""

    STACK = "stack"
    MODULE = "module"
    SIZE = "size"
    AGE = "age"
    OP = "op"

    @property
    def following(self) -> GroupBy:
        every = list(GroupBy)
        return every[(every.index(self) + 1) % len(every)]


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryNode:
    """Some blocks together. `size_bytes` is negative for what a difference lost. `quiet`: not the program's own."""

    label: str
    size_bytes: int
    blocks: int
    children: tuple[MemoryNode, ...] = ()
    quiet: bool = False


def largest_first(nodes: Iterable[MemoryNode]) -> list[MemoryNode]:
    """Of a difference, what it gained or lost most."""
    return sorted(nodes, key=lambda node: -abs(node.size_bytes))


@dataclass(frozen=True, slots=True, kw_only=True)
class CurveView:
    """Bytes of the program along the trace: the least and the most within each point. Points of steps, peak, marks."""

    low_bytes: tuple[int, ...]
    high_bytes: tuple[int, ...]
    steps: tuple[tuple[int, int], ...]  # step, point
    moments: tuple[Moment, ...]
    peak: int
    here: int
    mark: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryView:
    """`at` None: the end of the trace. `since`: the nodes are a difference from there. marked: one end of a difference
    that has no other end yet. `note`: why there is nothing. refused: why there is no difference, and what to do.

    device: of which all this is; empty where there is only the CPU. reserved_bytes: what the GPU's allocator holds.

    is_least: there was more, older than the trace, of which nobody knows how much; `uncounted_bytes` at most.
    """

    note: str = ""
    refused: str = ""
    device: str = ""
    at: Moment | None = None
    since: Moment | None = None
    marked: Moment | None = None
    by: GroupBy = GroupBy.STACK
    curve: CurveView | None = None
    peak_bytes: int = 0
    peak_text: str = ""
    program_bytes: int = 0
    backend_bytes: int = 0
    before_bytes: int = 0
    reserved_bytes: int = 0
    is_least: bool = False
    uncounted_bytes: int | None = 0
    growth_bytes: int = 0
    nodes: tuple[MemoryNode, ...] = ()

    @property
    def total_bytes(self) -> int:
        """What the nodes are shares of: everything that is live. At least 1."""
        return max(self.program_bytes + self.backend_bytes, 1)
