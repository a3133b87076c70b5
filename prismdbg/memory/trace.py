"""A memory trace as columns: one value a record, in the order in which things happened.

Memory of several devices is never added up: a `MemoryTrace` is of one of them, and of what has no device (operators,
times).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from prismdbg.capsule.limits import MAX_DEVICES
from prismdbg.capsule.memory_format import CPU, Flag, Kind, device_name
from prismdbg.capsule.memory_reader import SiteNumbers, Span, TraceParts, read_parts
from prismdbg.errors import CapsuleError, UsageError
from prismdbg.model.frame import Frame, source_of
from prismdbg.model.moment import Moment

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

NEVER = np.iinfo(np.int64).max
_LAYOUT = np.dtype(
    [
        ("kind", "u1"),
        ("flags", "u1"),
        ("device", "<u2"),
        ("thread", "<u4"),
        ("address", "<u8"),
        ("size_bytes", "<u8"),
        ("time_ns", "<i8"),
        ("step", "<u4"),
        ("collective", "<u4"),
        ("op", "<u4"),
        ("site", "<u4"),
        ("block", "<u8"),
        ("total_bytes", "<u8"),
    ]
)
_ADDS = (Kind.ALLOCATION, Kind.BEFORE)
_OF_A_DEVICE = (*_ADDS, Kind.FREE, Kind.REFUSED, Kind.RESERVED, Kind.RELEASED)
_NUMBER_BITS = 20  # of a collective within its step, and of an operator since its collective
_NUMBERS = (1 << _NUMBER_BITS) - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """Where an event was made. Operators and module are empty where none ran; frames innermost first."""

    outer_op: str
    op: str
    module: str
    frames: tuple[Frame, ...]
    stack: int

    @property
    def own_frame(self) -> Frame | None:
        """The program's own line."""
        return source_of(self.frames)


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """One allocation. `freed`: when, None where it still lives at the trace's end."""

    row: int
    number: int
    moment: Moment
    freed: Moment | None
    size_bytes: int
    address: int
    site: Site
    thread: int
    is_backend: bool
    is_before: bool


@dataclass(slots=True, kw_only=True)
class MemoryTrace:
    """total_bytes, backend_bytes: what the program's own and the backend's blocks hold on `shown` after each record.
    reserved_bytes: what the device's allocator holds of it then, in use or not; 0 for the CPU.

    made, freed: rows of allocations (and of blocks from before), and for each the row of its free, or NEVER.

    shown: the device whose memory this is. devices: all that the trace has blocks of, the largest peak first.
    """

    kind: Ints
    flags: Ints
    device: Ints
    thread: Ints
    address: Ints
    size_bytes: Ints
    time_ns: Ints
    step: Ints
    collective: Ints
    op: Ints
    site: Ints
    block: Ints
    total_bytes: Ints
    backend_bytes: Ints
    reserved_bytes: Ints
    made: Ints
    freed: Ints
    shown: int
    devices: tuple[int, ...]
    parts: TraceParts = field(repr=False)
    _order: Ints = field(repr=False)
    _numbers: Ints = field(repr=False)
    _records: int
    _all: NDArray[np.void] = field(repr=False)

    def __len__(self) -> int:
        return len(self.kind)

    def on(self, device: int) -> MemoryTrace:
        """The same trace of another device."""
        if device == self.shown:
            return self
        _require(device, self.devices)
        return from_records(self._all, self.parts, device)

    @property
    def device_name(self) -> str:
        return device_name(self.shown)

    @property
    def is_of_several(self) -> bool:
        """Or of another device than the CPU, so that it must be said which one."""
        return self.devices != (CPU,)

    def records_before(self, row: int) -> int:
        """How many records of the whole trace, of all devices, lie before this row."""
        return int(self._numbers[row]) if row < len(self) else self._records

    @property
    def is_backend(self) -> Bools:
        return (self.flags & Flag.BACKEND) > 0

    @property
    def wall_offset_ns(self) -> int:
        return self.parts.wall_offset_ns

    @property
    def before_bytes(self) -> int:
        """The program's own blocks that are older than the trace, as far as they were known."""
        return int(self.size_bytes[(self.kind == Kind.BEFORE) & ~self.is_backend].sum())

    @property
    def is_whole(self) -> bool:
        """It goes back to the program's start. Else, of what is older, only what Python reached is known: what C++
        alone held then (a bucket of DDP, a saved tensor) is in no sum, so that sums are the least that there was. The
        allocator of another device tells all of its blocks."""
        if self.shown != CPU:
            return True
        if self.parts.from_start is not None:
            return self.parts.from_start
        unknown = (self.kind == Kind.BEFORE) & (self.site == 0)
        return not len(self) or (self.moment(0) == Moment(0) and not bool(unknown.any()))

    @property
    def uncounted_bytes(self) -> int | None:
        """At most that much of what is older than the trace is in no sum; None where no bound is known."""
        if self.is_whole:
            return 0
        if self.parts.in_use_bytes is None:
            return None
        happened = np.flatnonzero(self.kind != Kind.BEFORE)
        listed = slice(0, int(happened[0]) if len(happened) else len(self))
        return max(self.parts.in_use_bytes - int(self.size_bytes[listed].sum()), 0)

    @property
    def begin(self) -> Moment:
        """The collective after which the first thing happened; what was there before it is listed, not traced."""
        happened = np.flatnonzero(self.kind != Kind.BEFORE)
        first = self.moment(int(happened[0])) if len(happened) else self.end
        return Moment(first.step, first.collective)

    @property
    def end(self) -> Moment:
        """The last that was traced; a thread may have stored something earlier behind it."""
        return self.latest(len(self))

    def latest(self, row: int) -> Moment:
        """The latest moment of what lies before `row`."""
        return self.moment(int(np.searchsorted(self._order, self._order[row - 1]))) if row else Moment(0)

    def require(self, *moments: Moment, here: Moment | None = None) -> None:
        """`UsageError` for a moment of which the trace knows nothing. `here`: as far as the rank has come, where that
        is known; else the end of the last step is the last that can be said."""
        last = max(self.end, here) if here is not None else self.end
        for moment in moments:
            if not self.begin <= moment <= (last if here is not None else Moment(last.step + 1)):
                raise UsageError(
                    f"{moment} is outside the trace, which goes from {self.begin} to {last}",
                    hint="give a moment of the trace" + (", or run to it first" if here is not None else ""),
                )

    def moment(self, row: int) -> Moment:
        return Moment(int(self.step[row]), int(self.collective[row]), int(self.op[row]))

    def row_at(self, moment: Moment) -> int:
        """The first row at or after `moment`: what lies before it has happened by then."""
        return int(np.searchsorted(self._order, _order_of(moment.step, moment.collective, moment.op)))

    def site_at(self, number: int) -> Site:
        numbers = self.parts.sites.get(number) or SiteNumbers(outer_op=0, op=0, module=0, stack=0)
        texts = self.parts.texts
        return Site(
            outer_op=texts.get(numbers.outer_op, ""),
            op=texts.get(numbers.op, ""),
            module=texts.get(numbers.module, ""),
            frames=self.parts.stacks.get(numbers.stack, ()),
            stack=numbers.stack,
        )

    def allocation(self, row: int) -> Block:
        """Of a row in `made`."""
        at = int(np.searchsorted(self.made, row))
        freed = int(self.freed[at])
        return Block(
            row=row,
            number=int(self.block[row]),
            moment=self.moment(row),
            freed=self.moment(freed) if freed != NEVER else None,
            size_bytes=int(self.size_bytes[row]),
            address=int(self.address[row]),
            site=self.site_at(int(self.site[row])),
            thread=int(self.thread[row]),
            is_backend=bool(self.flags[row] & Flag.BACKEND),
            is_before=int(self.kind[row]) == Kind.BEFORE,
        )


def open_trace(folder: Path, records: int | None = None, device: int | None = None) -> MemoryTrace:
    """`records`: as many as the process itself says there are, where it was put back to an earlier time. device: None
    for the one with the largest peak.

    `CapsuleError` where there is none. A trace that is written at this moment is read as far as it goes.
    """
    parts = read_parts(folder)
    pieces = list(map(_records_of, parts.spans))
    rows = np.concatenate(pieces) if pieces else np.zeros(0, dtype=_LAYOUT)
    if len(rows) and (highest := int(rows["device"].max())) > MAX_DEVICES:
        raise CapsuleError(
            f"{folder} has memory of device {highest - 1}; torch numbers at most {MAX_DEVICES}",
            hint="record or fetch it again: the trace is damaged",
        )
    return from_records(rows[:records], parts, device)


def _records_of(span: Span) -> NDArray[np.void]:
    """A trace that is made anew is removed first, also while it is read."""
    try:
        return np.fromfile(span.path, dtype=_LAYOUT, count=span.records, offset=span.offset)
    except OSError as error:
        raise CapsuleError(
            f"{span.path} was removed while it was read: {error.strerror}", hint="try again once it is traced anew"
        ) from error


def from_bytes(records: bytes, parts: TraceParts) -> MemoryTrace:
    """Of records as a trace's segments hold them."""
    return from_records(np.frombuffer(records, dtype=_LAYOUT), parts)


def from_records(rows: NDArray[np.void], parts: TraceParts, device: int | None = None) -> MemoryTrace:
    """`device`: None for the one with the largest peak. `UsageError` for one of which the trace has nothing."""
    devices = _devices(rows)
    shown = devices[0] if device is None else device
    _require(shown, devices)
    numbers = np.flatnonzero(~np.isin(rows["kind"], _OF_A_DEVICE) | (rows["device"] == shown))
    columns = {name: rows[name][numbers].astype(np.int64) for name in _LAYOUT.names or ()}
    kind, block = columns["kind"], columns["block"]
    columns["total_bytes"] = _filled(columns["total_bytes"], columns["device"] == shown) + _found_late(columns)
    made = np.flatnonzero(np.isin(kind, _ADDS))
    order = _order_of(columns["step"], columns["collective"], columns["op"])
    return MemoryTrace(
        **columns,
        backend_bytes=np.cumsum(_signed(columns) * ((columns["flags"] & Flag.BACKEND) > 0)),
        reserved_bytes=_reserved(columns),
        made=made,
        freed=_frees(block[made], np.flatnonzero(kind == Kind.FREE), block),
        shown=shown,
        devices=devices,
        parts=parts,
        _numbers=numbers,
        _records=len(rows),
        _all=rows if len(devices) > 1 else rows[:0].copy(),
        _order=np.maximum.accumulate(order) if len(order) else order,
    )


def _require(device: int, devices: tuple[int, ...]) -> None:
    if device not in devices:
        raise UsageError(
            f"the trace has no memory of {device_name(device)}",
            hint=f"choose one of {', '.join(map(device_name, devices))}",
        )


def _devices(rows: NDArray[np.void]) -> tuple[int, ...]:
    """Those that have blocks, the largest peak first; the CPU where there is none."""
    has_block = np.isin(rows["kind"], _OF_A_DEVICE)
    highest: dict[int, int] = {}
    for device in np.unique(rows["device"][has_block]).tolist():
        highest[device] = int(rows["total_bytes"][has_block & (rows["device"] == device)].max())
    return tuple(sorted(highest, key=lambda device: (-highest[device], device))) or (CPU,)


def _filled(values: Ints, known: Bools) -> Ints:
    """Each that is not known is as the last one known before it, 0 at the begin."""
    last = np.maximum.accumulate(np.where(known, np.arange(len(values)), -1)) if len(values) else known.astype(int)
    filled: Ints = np.where(last >= 0, values[last], 0)
    return filled


def _signed(columns: dict[str, Ints]) -> Ints:
    """What each record adds: of a free below zero; what is no block adds nothing."""
    signs: Ints = np.isin(columns["kind"], _ADDS).astype(np.int64) - (columns["kind"] == Kind.FREE)
    return columns["size_bytes"] * signs


def _reserved(columns: dict[str, Ints]) -> Ints:
    """What is listed at the begin was there at the same time, segments with the blocks: our own traces list it at one
    moment, and so does a snapshot. What is reserved later was not there."""
    kind = columns["kind"]
    reserved: Ints = np.cumsum(
        columns["size_bytes"] * ((kind == Kind.RESERVED).astype(np.int64) - (kind == Kind.RELEASED))
    )
    order = _order_of(columns["step"], columns["collective"], columns["op"])
    happened = np.flatnonzero(~np.isin(kind, (Kind.BEFORE, Kind.RESERVED)) | (order != order[:1]))
    listed = int(happened[0]) if len(happened) else len(kind)
    if listed:
        reserved[:listed] = reserved[listed - 1]
    return reserved


def _found_late(columns: dict[str, Ints]) -> Ints:
    """What the program's blocks held more than each record says: those from before that were found after it."""
    before = (columns["kind"] == Kind.BEFORE) & ((columns["flags"] & Flag.BACKEND) == 0)
    happened = np.flatnonzero(columns["kind"] != Kind.BEFORE)
    if len(happened):
        before[: happened[0]] = False
    found = np.cumsum(columns["size_bytes"] * before)
    return found[-1] - found if len(found) else found


def _frees(blocks: Ints, rows: Ints, block: Ints) -> Ints:
    """For each of `blocks` its row among `rows`, which are frees."""
    freed = np.full(len(blocks), NEVER, dtype=np.int64)
    if len(blocks) and len(rows):
        order = np.argsort(blocks, kind="stable")
        numbers = blocks[order]
        at = np.minimum(np.searchsorted(numbers, block[rows]), len(blocks) - 1)
        known = numbers[at] == block[rows]
        freed[order[at[known]]] = rows[known]
    return freed


def _order_of(step: int | Ints, collective: int | Ints, op: int | Ints) -> Ints:
    """One number that is ordered as moments are; threads may have stored theirs a little late."""
    late = np.minimum(np.asarray(collective, dtype=np.int64), _NUMBERS)
    return (
        (np.asarray(step, dtype=np.int64) << (2 * _NUMBER_BITS))
        | (late << _NUMBER_BITS)
        | np.minimum(np.asarray(op, dtype=np.int64), _NUMBERS)
    )
