"""Writes readings into RUN/telemetry: a block of columns at a time, in segments of which the oldest are dropped."""

from __future__ import annotations

import json
import operator
import os
import sys
import time
import zlib
from array import array
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from prismdbg.telemetry import file_format as fmt
from prismdbg.telemetry.file_format import Record
from prismdbg.telemetry.sensor import Sensor

_LEVEL = 1
_HALF = 1 << 63


class TelemetryWriter:
    """A `Sink`: set `now_ns` before readings are given. `flush` writes what was given since. Raises `OSError`."""

    def __init__(self, folder: Path, about: Mapping[str, Any], segment_bytes: int = fmt.SEGMENT_BYTES) -> None:
        self.now_ns = 0
        self._folder = folder
        self._segment_bytes = segment_bytes
        self._about = dict(about)
        self._numbers: dict[Sensor, int] = {}
        self._missing: dict[tuple[str, str], str] = {}
        self._texts: dict[tuple[str, str], str] = {}
        self._times: dict[Sensor, list[int]] = {}
        self._values: dict[Sensor, list[int]] = {}
        self._pending: list[bytes] = []
        self._segment = 0
        self._written = 0
        self._file = -1
        folder.mkdir(mode=0o700, exist_ok=True, parents=True)
        self._begin_segment()

    def reading(self, sensor: Sensor, value: int) -> None:
        if sensor not in self._numbers:
            if len(self._numbers) >= fmt.MOST_SENSORS:
                self.missing("sampler", "sensors", f"more than {fmt.MOST_SENSORS}: the others are not stored")
                return
            self._numbers[sensor] = len(self._numbers)
            self._pending.append(self._sensor_record(sensor))
        if not -_HALF <= value < _HALF:
            self.missing(sensor.subject, sensor.name, f"{value} does not fit into 64 bits with a sign")
            return
        self._times.setdefault(sensor, []).append(self.now_ns)
        self._values.setdefault(sensor, []).append(value)

    def missing(self, subject: str, name: str, why: str) -> None:
        """Said once, and again when the reason is another one."""
        if self._missing.get((subject, name)) != why:
            self._missing[subject, name] = why
            self._pending.append(_json(Record.MISSING, subject=subject, name=name, why=why))

    def text(self, subject: str, name: str, value: str) -> None:
        if self._texts.get((subject, name)) != value:
            self._texts[subject, name] = value
            self._pending.append(_json(Record.TEXT, subject=subject, name=name, text=value))

    def flush(self) -> None:
        if self._written >= self._segment_bytes:
            self._begin_segment()
        if self._values:
            self._pending.append(self._values_record())
            self._times, self._values = {}, {}
        data, self._pending = b"".join(self._pending), []
        if data:
            self._write(data)

    def close(self) -> None:
        self.flush()
        os.close(self._file)

    def _begin_segment(self) -> None:
        """One that describes what the next block needs. A sensor that is read again is described again; the others, of
        processes that have ended, make room."""
        if self._file >= 0:
            os.close(self._file)
        self._segment += 1
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC
        self._file = os.open(self._folder / fmt.segment_name(self._segment), flags, 0o600)
        self._written = 0
        self._numbers = {sensor: number for number, sensor in enumerate(self._values)}
        self._pending = [
            fmt.MAGIC + _json(Record.ABOUT, **self._about),
            *(self._sensor_record(sensor) for sensor in self._numbers),
            *(_json(Record.MISSING, subject=s, name=n, why=why) for (s, n), why in self._missing.items()),
            *(_json(Record.TEXT, subject=s, name=n, text=text) for (s, n), text in self._texts.items()),
        ]
        oldest = self._folder / fmt.segment_name(self._segment - fmt.SEGMENTS_KEPT)
        oldest.unlink(missing_ok=True)

    def _sensor_record(self, sensor: Sensor) -> bytes:
        return _json(
            Record.SENSOR,
            number=self._numbers[sensor],
            subject=sensor.subject,
            name=sensor.name,
            unit=sensor.unit,
            kind=str(sensor.kind),
            provenance=str(sensor.provenance),
        )

    def _values_record(self) -> bytes:
        columns: list[bytes] = []
        packed: dict[tuple[int, ...], bytes] = {}  # times: most sensors are read at the same ones
        for sensor, values in self._values.items():
            times = tuple(self._times[sensor])
            if times not in packed:
                packed[times] = _differences(self._times[sensor])
            columns += (fmt.COLUMN.pack(self._numbers[sensor], len(values)), packed[times], _differences(values))
        raw = b"".join(columns)
        return _record(Record.VALUES, fmt.UNPACKED.pack(len(raw)) + zlib.compress(raw, _LEVEL))

    def _write(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            view = view[os.write(self._file, view) :]
        self._written += len(data)


def about(period_ns: int) -> dict[str, Any]:
    """Of a sampler that begins now. Times of readings are of CLOCK_MONOTONIC, as those of the ranks' logs."""
    return {
        "format": 1,
        "period_ns": period_ns,
        "wall_offset_ns": time.time_ns() - time.monotonic_ns(),
        "pid": os.getpid(),
    }


def _differences(values: list[int]) -> bytes:
    """Modulo 2 to the 64, as the reader adds them up."""
    steps = list(map(operator.sub, values, [0, *values]))
    try:
        column = array("q", steps)
    except OverflowError:
        column = array("q", ((step + _HALF) % (2 * _HALF) - _HALF for step in steps))
    if sys.byteorder == "big":
        column.byteswap()
    return column.tobytes()


def _json(record: Record, /, **fields: Any) -> bytes:
    return _record(record, json.dumps(fields).encode())


def _record(kind: Record, payload: bytes) -> bytes:
    return fmt.RECORD.pack(kind, len(payload), zlib.crc32(payload)) + payload
