"""How readings are stored: `RUN/telemetry/samples.<n>.seg`, written by the sampler alone.

A segment is MAGIC and records: kind, length, CRC-32 of the payload, payload. Descriptions are JSON; VALUES are columns,
one for each sensor: its number, how many readings, their times, their values, packed with zlib. A column holds its
first value and then differences. Each segment describes all that it uses, so any of them can be read alone, and one
that was cut off is read up to its last whole record.
"""

from __future__ import annotations

import struct
from enum import IntEnum

MAGIC = b"PRTELEM1"
PREFIX = "samples."
SUFFIX = ".seg"
SEGMENT_BYTES = 4 << 20
SEGMENTS_KEPT = 16
MOST_BYTES = SEGMENT_BYTES * SEGMENTS_KEPT
MOST_BLOCK_BYTES = 8 << 20  # of VALUES, unpacked
MOST_SENSORS = 4096
RECORD = struct.Struct("<BII")
UNPACKED = struct.Struct("<I")
COLUMN = struct.Struct("<II")


class Record(IntEnum):
    ABOUT = 1
    SENSOR = 2
    MISSING = 3
    TEXT = 4
    VALUES = 5


def segment_name(number: int) -> str:
    return f"{PREFIX}{number:08}{SUFFIX}"
