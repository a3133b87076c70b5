"""Reads RUN/telemetry. The files are foreign, for a run may be copied around: a number in them costs no memory."""

from __future__ import annotations

import os
import stat
import zlib
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from prismdbg.capsule import checked_json
from prismdbg.errors import CapsuleError
from prismdbg.model.meanwhile import one_by_one
from prismdbg.telemetry import file_format as fmt
from prismdbg.telemetry.file_format import Record
from prismdbg.telemetry.sensor import Kind, Provenance, Sensor
from prismdbg.telemetry.series import Ints, Series, Telemetry

MOST_UNPACKED_BYTES = 256 << 20  # of all segments: the newest are read first
_COLUMN_COST_BYTES = 64  # what unpacking a column takes, however few readings it holds
_MOST_SEGMENT_BYTES = fmt.SEGMENT_BYTES + (16 << 20)

_Key = tuple[str, str]


def read_telemetry(folder: Path, most_bytes: int = MOST_UNPACKED_BYTES) -> Telemetry | None:
    """None where nothing was recorded. What is cut off or damaged is left out, and said (`Telemetry.damage`).

    most_bytes: of readings, unpacked. Segments older than that are not read, as if they had been dropped.
    """
    segments = sorted(folder.glob(f"{fmt.PREFIX}*{fmt.SUFFIX}")) if folder.is_dir() else []
    found = _Found()
    budget, least = MOST_UNPACKED_BYTES, max(MOST_UNPACKED_BYTES - most_bytes, 0)
    parts: list[_Found] = []
    for path in one_by_one(segments[-fmt.SEGMENTS_KEPT :][::-1], "reading files of telemetry"):
        part = _Found(budget=budget)
        _read_segment(path, part)
        budget = part.budget
        parts.append(part)
        if budget <= least:
            break
    for part in reversed(parts):
        found.add(part)
    if not found.is_known:
        return Telemetry(period_ns=0, wall_offset_ns=0, damage=found.damage) if found.damage else None
    found.dropped = len(parts) < len(segments) or segments[0].name != fmt.segment_name(1)
    return found.telemetry()


@dataclass(slots=True, kw_only=True)
class _Found:
    period_ns: int = 0
    wall_offset_ns: int = 0
    is_known: bool = False
    sensors: dict[_Key, Sensor] = field(default_factory=dict)
    times: dict[_Key, bytearray] = field(default_factory=dict)  # integers of 64 bits: a file may have many columns
    values: dict[_Key, bytearray] = field(default_factory=dict)
    missing: dict[_Key, str] = field(default_factory=dict)
    texts: dict[_Key, str] = field(default_factory=dict)
    damage: str = ""
    dropped: bool = False
    budget: int = 0

    def add(self, later: _Found) -> None:
        if later.is_known:
            self.period_ns, self.wall_offset_ns, self.is_known = later.period_ns, later.wall_offset_ns, True
        self.sensors |= later.sensors
        self.missing |= later.missing
        self.texts |= later.texts
        self.damage = later.damage or self.damage
        for mine, theirs in ((self.times, later.times), (self.values, later.values)):
            for key, columns in theirs.items():
                mine.setdefault(key, bytearray()).extend(columns)

    def telemetry(self) -> Telemetry:
        series = {}
        for key, sensor in self.sensors.items():
            if key in self.times:
                times, values = _ints(self.times[key]), _ints(self.values[key])
                order = np.argsort(times, kind="stable")
                series[key] = Series(sensor=sensor, times_ns=times[order], values=values[order])
        return Telemetry(
            period_ns=self.period_ns,
            wall_offset_ns=self.wall_offset_ns,
            series=series,
            missing={key: why for key, why in self.missing.items() if key not in series},
            texts=self.texts,
            damage=self.damage,
            dropped=self.dropped,
        )


def _ints(data: bytearray) -> Ints:
    return np.frombuffer(data, dtype=np.int64)


def _read_segment(path: Path, found: _Found) -> None:
    try:
        data = _bytes(path)
        if not fmt.MAGIC.startswith(data[: len(fmt.MAGIC)]):
            raise CapsuleError(f"{path} is not a file of telemetry")
        _read_records(data, path, found)
    except CapsuleError as error:
        found.damage = str(error)


def _bytes(path: Path) -> bytes:
    """Never of a link, a pipe or a device."""
    try:
        if not stat.S_ISREG(path.lstat().st_mode):
            raise CapsuleError(f"{path} is not a regular file")
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
            return file.read(_MOST_SEGMENT_BYTES)
    except OSError as error:
        raise CapsuleError(f"{path} cannot be read: {error.strerror}") from error


def _read_records(data: bytes, path: Path, found: _Found) -> None:
    numbers: dict[int, _Key] = {}
    at = len(fmt.MAGIC)
    while at + fmt.RECORD.size <= len(data) and found.budget > 0:
        kind, length, crc = fmt.RECORD.unpack_from(data, at)
        payload = data[at + fmt.RECORD.size : at + fmt.RECORD.size + length]
        if len(payload) < length:  # cut off: the sampler was killed, or writes right now
            return
        if zlib.crc32(payload) != crc:
            raise CapsuleError(f"{path} is damaged at byte {at}")
        where = f"{path} at byte {at}"
        if kind == Record.VALUES:
            _values(payload, where, numbers, found)
        else:
            _description(kind, checked_json.parse(payload, where), numbers, found)
        at += fmt.RECORD.size + length


def _description(kind: int, fields: checked_json.Fields, numbers: dict[int, _Key], found: _Found) -> None:
    match kind:
        case Record.ABOUT:
            if (version := fields.integer("format")) != 1:
                fields.fail("format", f"is {version}; this version reads format 1")
            found.period_ns = fields.integer("period_ns", least=1)
            found.wall_offset_ns = fields.integer("wall_offset_ns", least=-(2**62), most=2**62)
            found.is_known = True
        case Record.SENSOR:
            key = fields.text("subject"), fields.text("name")
            numbers[fields.integer("number", most=fmt.MOST_SENSORS - 1)] = key
            found.sensors[key] = _sensor(fields, key)
        case Record.MISSING:
            found.missing[fields.text("subject"), fields.text("name")] = fields.text("why")
        case Record.TEXT:
            found.texts[fields.text("subject"), fields.text("name")] = fields.text("text")


def _sensor(fields: checked_json.Fields, key: _Key) -> Sensor:
    kind, provenance = fields.text("kind"), fields.text("provenance")
    if kind not in set(Kind):
        fields.fail("kind", f"is {kind[:40]!r}, not a kind of sensor")
    if provenance not in set(Provenance):
        fields.fail("provenance", f"is {provenance[:40]!r}, not a known one")
    return Sensor(*key, fields.text("unit"), Kind(kind), Provenance(provenance))


def _values(payload: bytes, where: str, numbers: dict[int, _Key], found: _Found) -> None:
    raw = _unpacked(payload, where)
    found.budget -= len(raw)
    at, seen = 0, set[int]()
    while at < len(raw):
        if len(raw) - at < fmt.COLUMN.size:
            raise CapsuleError(f"{where}: a column is truncated")
        number, count = fmt.COLUMN.unpack_from(raw, at)
        at += fmt.COLUMN.size
        if number not in numbers or number in seen or not 0 < count <= (len(raw) - at) // 16:
            raise CapsuleError(f"{where}: a column is not what it says")
        seen.add(number)
        found.budget -= _COLUMN_COST_BYTES
        both = np.frombuffer(raw, dtype="<i8", count=2 * count, offset=at).reshape(2, count)
        times, values = np.cumsum(both, axis=1, dtype=np.int64)
        found.times.setdefault(numbers[number], bytearray()).extend(times.tobytes())
        found.values.setdefault(numbers[number], bytearray()).extend(values.tobytes())
        at += 16 * count


def _unpacked(payload: bytes, where: str) -> bytes:
    if len(payload) < fmt.UNPACKED.size:
        raise CapsuleError(f"{where}: a block is truncated")
    (size,) = fmt.UNPACKED.unpack_from(payload)
    if size > fmt.MOST_BLOCK_BYTES:
        raise CapsuleError(f"{where}: a block of {size} bytes is larger than {fmt.MOST_BLOCK_BYTES}")
    try:
        raw = zlib.decompressobj().decompress(payload[fmt.UNPACKED.size :], size + 1)
    except zlib.error as error:
        raise CapsuleError(f"{where}: a block cannot be unpacked: {error}") from error
    if len(raw) != size:
        raise CapsuleError(f"{where}: a block has {len(raw)} bytes, not {size}")
    return raw
