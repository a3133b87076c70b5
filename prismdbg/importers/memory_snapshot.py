"""Snapshots of torch's allocator (`torch.cuda.memory._dump_snapshot`) as the records of a memory trace.

A snapshot has what the allocator holds now (`segments`), and the last things that it did (`device_traces`), if
`_record_memory_history` was on. What was there before the first of them follows from both. There are no collectives:
the n-th entry of a device is at moment 0.0.n. A block is free when torch says `free_completed`, as in our own traces.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain, takewhile
from pathlib import Path, PurePath
from typing import Annotated, Any, NotRequired, TypedDict

from prismdbg.capsule import checked_json
from prismdbg.capsule.checked_json import between
from prismdbg.capsule.limits import MAX_BLOCKS, MAX_DEVICES, MAX_ENTRIES, MAX_SEGMENTS
from prismdbg.capsule.memory_format import CPU, RECORD, Kind
from prismdbg.capsule.memory_reader import SiteNumbers, TraceParts
from prismdbg.errors import CapsuleError
from prismdbg.importers.plain_pickle import read_pickle
from prismdbg.model.address_ranges import Change, Range, ranges_after
from prismdbg.model.frame import Frame

MAX_SNAPSHOT_BYTES = 256 << 20
MOST_FRAMES = 1 << 22
_LONG_TEXT = 1 << 10  # characters
_FEWER = (
    "if the file is not damaged, record fewer entries: torch.cuda.memory._record_memory_history(max_entries=100000)"
)
_NATIVE = frozenset({".c", ".cc", ".cpp", ".cxx", ".cu", ".cuh", ".h", ".hpp"})
_NATIVE_OPERATOR = re.compile(r"\bat::_ops::(\w+)::")
_OWN_OPERATORS = 2  # the innermost and the outermost
_ACTIVE = frozenset({"active_allocated", "active_awaiting_free", "active_pending_free"})
_RESERVES = frozenset({"segment_alloc", "segment_map"})
_RELEASES = frozenset({"segment_free", "segment_unmap"})

Size = Annotated[int, between(0, 1 << 42)]
Address = Annotated[int, between(0, 1 << 62)]


def _few_segments(segments: list[Any]) -> str:
    return f"has {len(segments)} segments, more than {MAX_SEGMENTS}" if len(segments) > MAX_SEGMENTS else ""


def _few_devices(devices: list[Any]) -> str:
    return f"is of {len(devices)} devices, more than {MAX_DEVICES}" if len(devices) > MAX_DEVICES else ""


class _Frame(TypedDict):
    filename: str
    line: int
    name: str


class _Entry(TypedDict):
    action: str
    size: Size
    addr: NotRequired[Address]
    frames: NotRequired[list[Any]]
    time_us: NotRequired[Annotated[int, between(0, 1 << 53)]]


class _Block(TypedDict):
    size: Size
    state: str
    address: NotRequired[Address]
    requested_size: NotRequired[Size]
    frames: NotRequired[list[Any]]


class _Segment(TypedDict):
    device: Annotated[int, between(0, MAX_DEVICES - 1)]
    address: Address
    total_size: Size
    blocks: list[Any]


class _Own(TypedDict):
    """What snapshots of ours say that torch's have no word for. device: `cpu`. whole: its trace began with the
    program."""

    device: str
    whole: bool


class _Snapshot(TypedDict):
    segments: Annotated[list[Any], _few_segments]
    device_traces: Annotated[list[list[Any]], _few_devices]
    prismdbg: NotRequired[_Own]


def is_snapshot(path: Path) -> bool:
    """Whether it is a pickle: what is in it shows when it is read."""
    if not path.is_file():  # a pipe would be waited for
        return False
    try:
        with path.open("rb") as file:
            head = file.read(2)
    except OSError:
        return False
    return len(head) == 2 and head[0] == 0x80 and 2 <= head[1] <= 5


def read_snapshot(path: Path) -> tuple[bytes, TraceParts]:
    """Records of all devices, as a trace's segments hold them, and the names of their numbers. `CapsuleError` for what
    is damaged, too large, or no snapshot."""
    snapshot = _read(path)
    own = snapshot.get("prismdbg")
    names = _Names(str(path), TraceParts(spans=[], pid=0, wall_offset_ns=0))
    if own is not None:
        names.parts.from_start = own["whole"]
    records = bytearray()
    for index, (entries, segments) in enumerate(_devices(snapshot, str(path))):
        held = [block for segment in segments for block in _active(segment)]
        if own is not None and own["device"] == "cpu":
            _Device(CPU, names, records).write(entries, [], held)  # the CPU's allocator has no segments
        else:
            _Device(index + 1, names, records).write(entries, segments, held)
    return bytes(records), names.parts


def _read(path: Path) -> _Snapshot:
    if path.is_file() and path.stat().st_size > MAX_SNAPSHOT_BYTES:
        raise CapsuleError(f"{path} is larger than {MAX_SNAPSHOT_BYTES >> 20} MiB", hint=_FEWER)
    data = checked_json.read_bytes(path, limit_bytes=MAX_SNAPSHOT_BYTES)
    value = read_pickle(data, str(path), _FEWER, looks_once=True)
    if not isinstance(value, dict) or "device_traces" not in value:
        raise CapsuleError(f"{path} is not a memory snapshot", hint="give a file of torch.cuda.memory._dump_snapshot")
    return checked_json.checked(_Snapshot, value, str(path))


def _devices(snapshot: _Snapshot, where: str) -> Iterator[tuple[list[_Entry], list[_Segment]]]:
    traces, segments = snapshot["device_traces"], _segments(snapshot["segments"], where)
    _require_few("entries", sum(map(len, traces)), MAX_ENTRIES, where)
    for index in range(max(len(traces), 1 + max(segments, default=-1))):
        entries = traces[index] if index < len(traces) else []
        for number, entry in enumerate(entries):
            checked_json.checked(_Entry, entry, f"{where}: device_traces[{index}][{number}]")
        yield entries, segments.get(index, [])


def _segments(told: list[Any], where: str) -> dict[int, list[_Segment]]:
    """By device. All blocks are counted, each time that they are listed: a pickle can list the same ones again and
    again in a few bytes."""
    found: dict[int, list[_Segment]] = defaultdict(list)
    count = 0
    for number, value in enumerate(told):
        segment = checked_json.checked(_Segment, value, f"{where}: segments[{number}]")
        count += len(segment["blocks"])
        _require_few("blocks", count, MAX_BLOCKS, where)
        for block in segment["blocks"]:
            checked_json.checked(_Block, block, f"{where}: a block of segments[{number}]")
        found[segment["device"]].append(segment)
    return found


def _require_few(what: str, count: int, most: int, where: str) -> None:
    if count > most:
        raise CapsuleError(f"{where} has more than {most} {what}", hint=_FEWER)


@dataclass(frozen=True, slots=True)
class _Held:
    address: int
    size_bytes: int
    frames: list[Any]


def _active(segment: _Segment) -> Iterator[_Held]:
    """The blocks that a tensor holds, or that wait for a stream. Of older snapshots the address is a sum."""
    address = segment["address"]
    for block in segment["blocks"]:
        if block["state"] in _ACTIVE:
            size_bytes = block.get("requested_size", block["size"])
            yield _Held(block.get("address", address), size_bytes, block.get("frames", []))
        address += block["size"]


@dataclass(slots=True)
class _Names:
    """Numbers of stacks and sites. A list of frames that several entries share is looked at once."""

    where: str
    parts: TraceParts
    _texts: dict[str, int] = field(default_factory=lambda: {"": 0})
    _stacks: dict[tuple[Frame, ...], int] = field(default_factory=lambda: {(): 0})
    _sites: dict[int, int] = field(default_factory=dict)
    _frames: int = 0

    def site(self, frames: list[Any]) -> int:
        """0 where nothing is known of it."""
        if not frames:
            return 0
        if id(frames) not in self._sites:  # the snapshot keeps all lists as long as it is read
            self._sites[id(frames)] = self._new_site(frames)
        return self._sites[id(frames)]

    def _new_site(self, frames: list[Any]) -> int:
        self._count(len(frames))
        told = [checked_json.checked(_Frame, frame, f"{self.where}: a frame") for frame in frames]
        self._count(sum((len(frame["filename"]) + len(frame["name"])) // _LONG_TEXT for frame in told))
        operators = _operators(told)
        stack = tuple(Frame(f["filename"], f["line"], f["name"]) for f in told if not _is_native(f["filename"]))
        number = len(self.parts.sites)
        self.parts.sites[number] = SiteNumbers(
            outer_op=self._text(operators[-1]), op=self._text(operators[0]), module=0, stack=self._stack(stack)
        )
        return number

    def _count(self, frames: int) -> None:
        """One with a long text counts as several: frames can share it, and it is searched for each of them."""
        self._frames += frames
        _require_few("frames in its stacks", self._frames, MOST_FRAMES, self.where)

    def _text(self, text: str) -> int:
        number = self._texts.setdefault(text, len(self._texts))
        self.parts.texts.setdefault(number, text)
        return number

    def _stack(self, stack: tuple[Frame, ...]) -> int:
        number = self._stacks.setdefault(stack, len(self._stacks))
        self.parts.stacks.setdefault(number, stack)
        return number


def _operators(frames: list[_Frame]) -> list[str]:
    """Innermost first: as our own snapshots have them, before all frames, or by the names of torch's C++ functions."""
    own = [frame["name"] for frame in takewhile(lambda frame: not frame["filename"] and not frame["line"], frames)]
    found = (_NATIVE_OPERATOR.search(frame["name"]) for frame in frames if _is_native(frame["filename"]))
    return [match[1] for match in found if match is not None] or (own if len(own) <= _OWN_OPERATORS else []) or [""]


def _is_native(filename: str) -> bool:
    return filename in ("", "??") or PurePath(filename).suffix in _NATIVE


@dataclass(slots=True)
class _Device:
    """Writes the records of one device."""

    number: int
    names: _Names
    records: bytearray
    _blocks: int = 0
    _total: int = 0
    _live: dict[int, tuple[int, int]] = field(default_factory=dict)

    def write(self, entries: list[_Entry], segments: list[_Segment], held: list[_Held]) -> None:
        began_us = entries[0].get("time_us", 0) if entries else 0
        for block in _before(entries, held):
            self._hold(Kind.BEFORE, block, 0, began_us)
        for address, end in _reserved_before(entries, segments):
            self._record(Kind.RESERVED, 0, _Held(address, end - address, []), 0, began_us)
        for at, entry in enumerate(entries, start=1):
            self._entry(entry, at)

    def _entry(self, entry: _Entry, at: int) -> None:
        action, time_us = entry["action"], entry.get("time_us", 0)
        block = _Held(entry.get("addr", 0), entry["size"], entry.get("frames", []))
        if action == "alloc":
            self._free(block, at, time_us)  # of a block whose free was not recorded
            self._hold(Kind.ALLOCATION, block, at, time_us)
        elif action == "free_completed":
            self._free(block, at, time_us)
        elif action in _RESERVES or action in _RELEASES:
            self._record(Kind.RESERVED if action in _RESERVES else Kind.RELEASED, 0, block, at, time_us)
        elif action == "oom":
            self._record(Kind.REFUSED, 0, block, at, time_us)

    def _hold(self, kind: Kind, block: _Held, at: int, time_us: int) -> None:
        self._blocks += 1
        self._live[block.address] = (self._blocks, block.size_bytes)
        self._total += block.size_bytes
        self._record(kind, self._blocks, block, at, time_us)

    def _free(self, block: _Held, at: int, time_us: int) -> None:
        number, size_bytes = self._live.pop(block.address, (0, 0))
        if number:
            self._total -= size_bytes
            self._record(Kind.FREE, number, _Held(block.address, size_bytes, block.frames), at, time_us)

    def _record(self, kind: Kind, number: int, block: _Held, at: int, time_us: int) -> None:
        place = (0, 0, at, self.names.site(block.frames))
        what = (kind, 0, self.number, 0, block.address, block.size_bytes, time_us * 1000)
        self.records += RECORD.pack(*what, *place, number, self._total)


def _before(entries: list[_Entry], held: list[_Held]) -> Iterator[_Held]:
    """What is freed, or is still there, and was not allocated in the trace."""
    live: set[int] = set()
    older: dict[int, _Held] = {}
    for entry in entries:
        address = entry.get("addr", 0)
        if entry["action"] == "alloc":
            live.add(address)
        elif entry["action"] == "free_completed" and address not in live:
            older.setdefault(address, _Held(address, entry["size"], []))
        elif entry["action"] == "free_completed":
            live.remove(address)
    there: Mapping[int, _Held] = {block.address: block for block in held}
    yield from older.values()
    yield from (block for address, block in there.items() if address not in live and address not in older)


def _reserved_before(entries: list[_Entry], segments: list[_Segment]) -> list[Range]:
    """What there is now, with all that happened taken back."""
    now = (Change(each["address"], each["address"] + each["total_size"], is_there=True) for each in segments)
    return ranges_after(chain(now, map(_taken_back, filter(_is_of_segment, reversed(entries)))))


def _is_of_segment(entry: _Entry) -> bool:
    return entry["action"] in _RESERVES or entry["action"] in _RELEASES


def _taken_back(entry: _Entry) -> Change:
    address = entry.get("addr", 0)
    return Change(address, address + entry["size"], is_there=entry["action"] in _RELEASES)
