"""What an ELF file asks for: libraries (DT_NEEDED) and its loader (PT_INTERP). 64-bit little-endian files only."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

_HEADER = struct.Struct("<4s5B7xHHIQQQIHHHHHH")
_PROGRAM = struct.Struct("<IIQQQQQQ")
_PT_LOAD, _PT_DYNAMIC, _PT_INTERP, _DT_NEEDED, _DT_STRTAB = 1, 2, 3, 1, 5
_MAX_TABLE_BYTES = 16 << 20


def needed_libraries(path: Path) -> tuple[str, ...]:
    """Names of libraries, and the path of the loader. Empty for what is no such file, unreadable or damaged."""
    try:
        with path.open("rb") as file:
            fields = _HEADER.unpack(file.read(_HEADER.size))
            if fields[0] != b"\x7fELF" or fields[1:3] != (2, 1):
                return ()
            offset, size, count = fields[10], fields[14], fields[15]
            table = _read(file, offset, size * count)
            programs = [_PROGRAM.unpack_from(table, size * number) for number in range(count)]
            return (*_loader(file, programs), *_needed(file, programs))
    except (OSError, struct.error, StopIteration, ValueError):
        return ()


def _loader(file: BinaryIO, programs: list[tuple[int, ...]]) -> Iterator[str]:
    for part in programs:
        if part[0] == _PT_INTERP:
            yield _text(file, part[2])


def _needed(file: BinaryIO, programs: list[tuple[int, ...]]) -> Iterator[str]:
    dynamic = next((part for part in programs if part[0] == _PT_DYNAMIC), None)
    if dynamic is None:
        return
    entries = list(struct.iter_unpack("<qQ", _read(file, dynamic[2], dynamic[5] // 16 * 16)))
    names = [value for tag, value in entries if tag == _DT_NEEDED]
    if names:
        start = _file_offset(next(value for tag, value in entries if tag == _DT_STRTAB), programs)
        yield from (_text(file, start + name) for name in names)


def _text(file: BinaryIO, offset: int) -> str:
    return _read(file, offset, 256).partition(b"\0")[0].decode()


def _read(file: BinaryIO, offset: int, size: int) -> bytes:
    if size > _MAX_TABLE_BYTES:
        raise ValueError("a table is too large")
    file.seek(offset)
    return file.read(size)


def _file_offset(address: int, programs: list[tuple[int, ...]]) -> int:
    part = next(part for part in programs if part[0] == _PT_LOAD and part[3] <= address < part[3] + part[5])
    return address - part[3] + part[2]
