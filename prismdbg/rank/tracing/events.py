"""What the tracer says to the rank's own code: an event, a filter for events, a live allocation."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from prismdbg.model.collective import Frame
from prismdbg.model.moment import Moment


class EventKind(StrEnum):
    OP = "op"
    ALLOCATION = "allocation"
    FREE = "free"


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """`op` is the innermost operator, `outer_op` the outermost. `matched`: the filters that let it pass.

    total_bytes: what the program's own blocks hold on `device`; with the allocation, without the freed block. Of an
    operator, `device` is the one with the largest peak.
    """

    kind: EventKind
    moment: Moment
    op: str
    outer_op: str
    module: str
    address: int
    size_bytes: int
    total_bytes: int
    block: int
    is_backend: bool
    device: str
    matched: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """Which events are told. What is given in one filter holds together, except `every` and `at`.

    every: all of the issuing thread. at: an operator at or after this moment. size_at_least_bytes: an allocation.
    total_above_bytes: the allocation that lifts the program's own above it. op: an operator, `aten::mm` or `mm`; with
    a size or total, allocations in it.
    """

    every: bool = False
    at: Moment | None = None
    size_at_least_bytes: int = 0
    total_above_bytes: int = 0
    op: str = ""

    def as_tuple(self) -> tuple[bool, tuple[int, int, int] | None, int, int, str]:
        at = (self.at.step, self.at.collective, self.at.op) if self.at is not None else None
        return self.every, at, self.size_at_least_bytes, self.total_above_bytes, self.op


@dataclass(frozen=True, slots=True, kw_only=True)
class Allocation:
    """A live block. Of one that is older than the trace only place and size are known."""

    block: int
    address: int
    size_bytes: int
    moment: Moment
    op: str
    outer_op: str
    module: str
    frames: tuple[Frame, ...]
    is_backend: bool
    is_before: bool
    device: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Armed:
    """What was there when the trace began, as far as Python's tensors reach."""

    before_bytes: int
    before_blocks: int
    path: Path | None
