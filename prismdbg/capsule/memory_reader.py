"""Finds the parts of a memory trace: whole records as spans of files, and the names of their numbers.

Records are not decoded here: `prismdbg.memory` reads them as columns.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypedDict

from prismdbg.capsule import checked_json, memory_format
from prismdbg.capsule.checked_json import Count
from prismdbg.capsule.file_window import FileWindow
from prismdbg.capsule.log import format as log_format
from prismdbg.capsule.log.reader import event_segments
from prismdbg.capsule.log.records import part
from prismdbg.capsule.transfer import open_plain
from prismdbg.errors import CapsuleError
from prismdbg.model.collective import Frame

_HINT = "trace or fetch it again: the trace is damaged or was altered"


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """`records` of them lie in the file from `offset` on."""

    path: Path
    offset: int
    records: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteNumbers:
    outer_op: int
    op: int
    module: int
    stack: int


@dataclass(slots=True, kw_only=True)
class TraceParts:
    """`wall_offset_ns` added to a record's time gives nanoseconds since 1970.

    from_start: nothing of the program had run when it began; None where nobody says. in_use_bytes: what the process
    held of the C library's memory then, all tensors among it; None where that is not known. untraced: why blocks on
    GPUs are not in it, empty where they are or no GPU can be used.
    """

    spans: list[Span]
    pid: int
    wall_offset_ns: int
    from_start: bool | None = None
    in_use_bytes: int | None = None
    untraced: str = ""
    texts: dict[int, str] = field(default_factory=lambda: {0: ""})
    stacks: dict[int, tuple[Frame, ...]] = field(default_factory=lambda: {0: ()})
    sites: dict[int, SiteNumbers] = field(default_factory=lambda: {0: SiteNumbers(outer_op=0, op=0, module=0, stack=0)})


class _Known(TypedDict):
    from_start: bool
    in_use_bytes: Count | None


class Began(_Known, total=False):
    """What the tracer says of its begin."""

    untraced: str


def is_trace(folder: Path) -> bool:
    return (folder / memory_format.segment_name(0)).is_file()


def read_parts(folder: Path) -> TraceParts:
    """`CapsuleError` where there is no trace, or a damaged one."""
    if not is_trace(folder):
        raise CapsuleError(
            f"no memory trace in {folder}",
            hint="record with --memory, or run `prismdbg memory CAPSULE`, which replays it with tracing",
        )
    try:
        return _read_parts(folder)
    except OSError as error:
        raise CapsuleError(f"{error.filename or folder} cannot be read: {error.strerror}", hint=_HINT) from error


def _read_parts(folder: Path) -> TraceParts:
    parts = TraceParts(spans=[], pid=0, wall_offset_ns=0)
    _add_begin(parts, folder / memory_format.BEGAN)
    for index, path in enumerate(sorted(folder.glob("memory.*.seg"))):
        if path.name != memory_format.segment_name(index):
            raise CapsuleError(
                f"{folder} lacks {memory_format.segment_name(index)}", hint="fetch it again: the trace was altered"
            )
        if not _add_segment(parts, path, index):
            break
    for _, path in event_segments(folder):
        if not _add_names(parts, path):
            break
    return parts


def _add_begin(parts: TraceParts, path: Path) -> None:
    if not path.is_file():
        return
    try:
        told = checked_json.checked(Began, checked_json.read(path).value, str(path))
    except CapsuleError as error:
        raise CapsuleError(f"{path} is damaged: {error}", hint=_HINT) from None
    parts.from_start, parts.in_use_bytes = told["from_start"], told["in_use_bytes"]
    parts.untraced = told.get("untraced", "")


def _add_segment(parts: TraceParts, path: Path, index: int) -> bool:
    """True where the segment is full, so that a next one may go on."""
    with open_plain(path) as file:
        head = file.read(memory_format.HEADER.size)
        size_bytes = file.seek(0, 2)
    if len(head) < memory_format.HEADER.size or not head[0]:
        return False  # made a moment ago
    magic, version, number, pid, record_bytes, wall, monotonic, capacity, count = memory_format.HEADER.unpack(head)
    if magic != memory_format.MAGIC or record_bytes != memory_format.RECORD.size or number != index:
        raise CapsuleError(
            f"{path} is not part of this memory trace", hint="check the path: the file is damaged or misplaced"
        )
    if version != memory_format.VERSION:
        raise CapsuleError(
            f"{path} has trace format {version}; this version reads {memory_format.VERSION}",
            hint="use a newer prismdbg",
        )
    if count > capacity or memory_format.HEADER.size + count * record_bytes > size_bytes:
        raise CapsuleError(
            f"{path} is damaged: {count} records do not fit into {size_bytes} bytes",
            hint="record it again with --memory: the trace was cut or altered",
        )
    parts.pid, parts.wall_offset_ns = pid, wall - monotonic
    parts.spans.append(Span(path=path, offset=memory_format.HEADER.size, records=count))
    return bool(count == capacity)


def _add_names(parts: TraceParts, path: Path) -> bool:
    """True where the segment was closed, so that the next one goes on."""
    with open_plain(path) as file:
        if file.seek(0, 2) < log_format.HEADER.size:
            return False
        try:
            for kind, body in _records(FileWindow(file.fileno()), path):
                if kind == log_format.Kind.END:
                    return True
                _name(parts, kind, body)
        except (ValueError, IndexError) as error:
            raise CapsuleError(
                f"{path} is damaged: {error}", hint="record it again with --memory: the trace was cut or altered"
            ) from error
    return False


def _records(data: FileWindow, path: Path) -> Iterator[tuple[int, bytes]]:
    """Ends where the file was cut since it was opened."""
    if data[0:8] == bytes(8):
        return
    if data[0:8] != log_format.MAGIC:
        raise CapsuleError(
            f"{path} is not a prismdbg log", hint="check the path: the file is damaged, or another program wrote it"
        )
    offset, end = log_format.HEADER.size, len(data)
    while len(head := data[offset : min(offset + log_format.RECORD.size, end)]) == log_format.RECORD.size:
        size, kind, _ = log_format.RECORD.unpack(head)
        if size == 0:
            return
        if size % 8 or size < log_format.RECORD.size or offset + size > end:
            raise CapsuleError(
                f"{path} is damaged at offset {offset}, in a record of {size} bytes",
                hint="record it again with --memory: the trace was cut or altered",
            )
        yield kind, data[offset + log_format.RECORD.size : offset + size]
        offset += size


def _name(parts: TraceParts, kind: int, body: bytes) -> None:
    if kind == log_format.Kind.TEXT:
        number, size = log_format.TEXT.unpack(part(body, 0, log_format.TEXT.size))
        parts.texts[number] = part(body, log_format.TEXT.size, size).decode("utf-8", "replace")
    elif kind == log_format.Kind.STACK:
        number, count = log_format.STACK.unpack(part(body, 0, log_format.STACK.size))
        rows = log_format.FRAME.iter_unpack(part(body, log_format.STACK.size, count * log_format.FRAME.size))
        texts = parts.texts
        parts.stacks[number] = tuple(Frame(texts.get(f, ""), line, texts.get(n, "")) for f, line, n in rows)
    elif kind == memory_format.SITE_KIND:
        number, outer, op, module, stack, _ = memory_format.SITE.unpack(part(body, 0, memory_format.SITE.size))
        parts.sites[number] = SiteNumbers(outer_op=outer, op=op, module=module, stack=stack)
