"""Which libraries an ELF file asks for by name (DT_NEEDED). 64-bit little-endian only: all else needs nothing."""

from __future__ import annotations

import struct
from pathlib import Path

_HEADER = struct.Struct("<4s5B7xHHIQQQIHHHHHH")
_PROGRAM = struct.Struct("<IIQQQQQQ")
_PT_LOAD, _PT_DYNAMIC, _DT_NEEDED, _DT_STRTAB = 1, 2, 1, 5
_MAX_TABLE_BYTES = 16 << 20


def needed_libraries(path: Path) -> tuple[str, ...]:
    """Empty for what is no such file, cannot be read or is damaged."""
    try:
        with path.open("rb") as file:
            fields = _HEADER.unpack(file.read(_HEADER.size))
            if fields[0] != b"\x7fELF" or fields[1:3] != (2, 1):
                return ()
            offset, size, count = fields[10], fields[14], fields[15]
            file.seek(offset)
            table = file.read(size * count)
            programs = [_PROGRAM.unpack_from(table, size * number) for number in range(count)]
            dynamic = next((part for part in programs if part[0] == _PT_DYNAMIC), None)
            if dynamic is None or dynamic[5] > _MAX_TABLE_BYTES:
                return ()
            file.seek(dynamic[2])
            entries = list(struct.iter_unpack("<qQ", file.read(dynamic[5] // 16 * 16)))
            strings = next(value for tag, value in entries if tag == _DT_STRTAB)
            start = _file_offset(strings, programs)
            names = []
            for tag, value in entries:
                if tag == _DT_NEEDED:
                    file.seek(start + value)
                    names.append(file.read(256).partition(b"\0")[0].decode())
            return tuple(names)
    except (OSError, struct.error, StopIteration, ValueError):
        return ()


def _file_offset(address: int, programs: list[tuple[int, ...]]) -> int:
    part = next(part for part in programs if part[0] == _PT_LOAD and part[3] <= address < part[3] + part[5])
    return address - part[3] + part[2]
