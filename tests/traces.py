"""Writes a memory trace as the native tracer does, from values: for tests of what reads one."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from prismdbg.capsule import memory_format
from prismdbg.capsule.log import format as log_format
from prismdbg.capsule.memory_format import Flag, Kind
from prismdbg.model.collective import Frame
from prismdbg.model.moment import Moment

CAPACITY = ((4 << 20) - memory_format.HEADER.size) // memory_format.RECORD.size
MAIN, GLOO = 100, 101
PID, WALL_NS = 7, 1_000_000


def header_of(index: int, count: int, capacity: int = CAPACITY) -> bytes:
    """Of a segment with `count` records in it."""
    what = (memory_format.MAGIC, memory_format.VERSION, index, PID, memory_format.RECORD.size)
    return memory_format.HEADER.pack(*what, WALL_NS, 0, capacity, count)


@dataclass
class TraceBuilder:
    """`now` is where the rank is; clock_ns: the time of what comes, else records are a nanosecond apart.

    from_start, in_use_bytes: what it says of its begin; None: nothing.
    """

    folder: Path
    capacity: int = CAPACITY
    now: Moment = field(default_factory=lambda: Moment(0))
    clock_ns: int | None = None
    from_start: bool | None = None
    in_use_bytes: int | None = None
    _records: list[bytes] = field(default_factory=list)
    _names: list[bytes] = field(default_factory=list)
    _texts: dict[str, int] = field(default_factory=lambda: {"": 0})
    _stacks: dict[tuple[Frame, ...], int] = field(default_factory=lambda: {(): 0})
    _sites: dict[tuple[int, int, int, int], int] = field(default_factory=lambda: {(0, 0, 0, 0): 0})
    _live: dict[int, tuple[int, int, int]] = field(default_factory=dict)
    _blocks: int = 0
    _totals: Counter[int] = field(default_factory=Counter)

    def allocate(
        self,
        size_bytes: int,
        op: str = "",
        *,
        outer: str = "",
        module: str = "",
        frames: tuple[Frame, ...] = (),
        backend: bool = False,
        kind: Kind = Kind.ALLOCATION,
        device: int = memory_format.CPU,
        old_stack: bool = False,
    ) -> int:
        """The block's number."""
        self._blocks += 1
        flags = Flag.BACKEND if backend else 0
        self._live[self._blocks] = (size_bytes, flags, device)
        self._totals[device] += 0 if backend else size_bytes
        site = self._site(outer or op, op, module, frames)
        self._record(kind, self._blocks, size_bytes, flags | (Flag.OLD_STACK if old_stack else 0), site, device=device)
        return self._blocks

    def before(self, size_bytes: int, *, device: int = memory_format.CPU) -> int:
        return self.allocate(size_bytes, kind=Kind.BEFORE, device=device)

    def reserve(self, address: int, size_bytes: int, device: int) -> None:
        self._record(Kind.RESERVED, 0, size_bytes, 0, 0, address=address, device=device)

    def release(self, address: int, size_bytes: int, device: int) -> None:
        self._record(Kind.RELEASED, 0, size_bytes, 0, 0, address=address, device=device)

    def free(self, block: int) -> None:
        size_bytes, flags, device = self._live.pop(block)
        self._totals[device] -= 0 if flags else size_bytes
        self._record(Kind.FREE, block, size_bytes, flags, 0, device=device)

    def refuse(self, size_bytes: int, op: str, frames: tuple[Frame, ...] = ()) -> None:
        self._record(Kind.REFUSED, 0, size_bytes, 0, self._site(op, op, "", frames))

    def operator(self, op: str, *, before_ended_ns: int = 0, frames: tuple[Frame, ...] = ()) -> None:
        self.now = Moment(self.now.step, self.now.collective, self.now.op + 1)
        self._record(Kind.OPERATOR, 0, 0, 0, self._site(op, op, "", frames), address=before_ended_ns)

    def answered(self, moment: Moment, issued_ns: int) -> None:
        self.now = moment
        self._record(Kind.ANSWERED, 0, 0, 0, 0, address=issued_ns)

    def waited(self, record_id: int, began_ns: int) -> None:
        self._record(Kind.WAITED, record_id, 0, 0, 0, address=began_ns)

    def write(self) -> Path:
        self.folder.mkdir(exist_ok=True)
        if self.from_start is not None:
            told = {"from_start": self.from_start, "in_use_bytes": self.in_use_bytes}
            (self.folder / memory_format.BEGAN).write_text(json.dumps(told))
        pieces = [self._records[i : i + self.capacity] for i in range(0, len(self._records), self.capacity)] or [[]]
        for index, piece in enumerate(pieces):
            header = header_of(index, len(piece), self.capacity)
            room = bytes((self.capacity - len(piece)) * memory_format.RECORD.size)
            (self.folder / memory_format.segment_name(index)).write_bytes(header + b"".join(piece) + room)
        head = log_format.HEADER.pack(log_format.MAGIC, log_format.VERSION, 0, -1, 7, 0, 0, 1 << 20)
        (self.folder / log_format.event_segment(0)).write_bytes(head + b"".join(self._names) + bytes(64))
        return self.folder

    def _record(
        self,
        kind: Kind,
        block: int,
        size_bytes: int,
        flags: int,
        site: int,
        address: int | None = None,
        device: int = memory_format.CPU,
    ) -> None:
        thread = GLOO if flags & Flag.BACKEND else MAIN
        place = (self.now.step, self.now.collective, self.now.op)
        time_ns = len(self._records) if self.clock_ns is None else self.clock_ns
        block_part = (0x1000 * block if address is None else address, size_bytes, time_ns)
        head = (kind, flags, device, thread)
        self._records.append(memory_format.RECORD.pack(*head, *block_part, *place, site, block, self._totals[device]))

    def _site(self, outer: str, op: str, module: str, frames: tuple[Frame, ...]) -> int:
        key = (self._text(outer), self._text(op), self._text(module), self._stack(frames))
        if key not in self._sites:
            self._sites[key] = len(self._sites)
            self._name(memory_format.SITE_KIND, memory_format.SITE.pack(self._sites[key], *key, 0))
        return self._sites[key]

    def _text(self, text: str) -> int:
        if text not in self._texts:
            self._texts[text] = len(self._texts)
            data = text.encode()
            self._name(log_format.Kind.TEXT, log_format.TEXT.pack(self._texts[text], len(data)) + data)
        return self._texts[text]

    def _stack(self, frames: tuple[Frame, ...]) -> int:
        if frames not in self._stacks:
            self._stacks[frames] = len(self._stacks)
            rows = [log_format.FRAME.pack(self._text(f.filename), f.line, self._text(f.name)) for f in frames]
            head = log_format.STACK.pack(self._stacks[frames], len(frames))
            self._name(log_format.Kind.STACK, head + b"".join(rows))
        return self._stacks[frames]

    def _name(self, kind: int, body: bytes) -> None:
        size = (log_format.RECORD.size + len(body) + 7) & ~7
        self._names.append((log_format.RECORD.pack(size, kind, 0) + body).ljust(size, b"\0"))
