"""Reads a packed capsule as a stream and believes none of it. Writes nothing: `pack` does that.

Only plain headers of files and folders are understood: no links, no devices, no long-name records and no
second place where a size could stand. The manifest comes first: what follows must be what it names.
"""

from __future__ import annotations

import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, NoReturn

import zstandard

from prismdbg.capsule import layout
from prismdbg.capsule.limits import GROWTH_FREE_BYTES, MAX_FILES, MAX_GROWTH, MAX_MANIFEST_BYTES, MAX_WINDOW_BYTES
from prismdbg.capsule.manifest import Manifest
from prismdbg.errors import CapsuleError
from prismdbg.jobs.storage.plain_tar import header_of

CHUNK_BYTES = 1 << 20
_ALTERED = "fetch it again: the archive is damaged or was altered"
_NO_ARCHIVE = "give a capsule or a file that `prismdbg pack` wrote; if it is one, fetch it again"


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What an archive may cost. total_bytes None: what the disk has free, less the reserve.

    A packed byte may become `ratio` bytes at most, beyond the first `floor_bytes`: logs are mostly zeros.
    """

    total_bytes: int | None = None
    reserve_bytes: int = 256 << 20
    ratio: int = MAX_GROWTH
    floor_bytes: int = GROWTH_FREE_BYTES


class _WithGuard:
    """The file, and behind it a frame that decompressors skip (RFC 8878, 3.1.2). Where the file lacks its last bytes,
    such as a checksum, zstd would give all that came before as if it were whole; the guard then stands where they
    belong, and is wrong."""

    _GUARD = b"\x50\x2a\x4d\x18" + bytes(4)  # magic number, size 0

    def __init__(self, file: BinaryIO) -> None:
        self._file, self._guard = file, self._GUARD

    def read(self, size: int = -1) -> bytes:
        data = self._file.read(size)
        if not data:
            data, self._guard = self._guard, b""
        return data


@dataclass(frozen=True, slots=True)
class Member:
    name: str
    is_folder: bool
    size_bytes: int


class ArchiveReader:
    """`manifest()` once, then `members()`, and of each file all of `chunks()` before the next.

    `file` is read and left open; `path` is what errors name.
    """

    def __init__(self, file: BinaryIO, path: Path, limits: Limits) -> None:
        self.path = path
        self._file = file
        self._limits = limits
        self._produced = 0
        self._unread = 0

    def __enter__(self) -> ArchiveReader:
        decompressor = zstandard.ZstdDecompressor(max_window_size=MAX_WINDOW_BYTES)
        source: Any = _WithGuard(self._file)  # of a file, `read` is all that is used
        self._stream = decompressor.stream_reader(source, read_across_frames=True, closefd=False)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stream.close()  # type: ignore[no-untyped-call]

    def manifest(self) -> tuple[Manifest, bytes]:
        """The first member, as a value and as its bytes."""
        member = self._next_member()
        if member is None or member.name != layout.MANIFEST or member.is_folder:
            self._fail(
                f"does not begin with {layout.MANIFEST}", hint="give a packed capsule; if this is one, it was altered"
            )
        if member.size_bytes > MAX_MANIFEST_BYTES:
            self._fail(f"has a manifest of {member.size_bytes} bytes; the limit is {MAX_MANIFEST_BYTES}")
        data = b"".join(self.chunks())
        return Manifest.from_bytes(data, f"{self.path}: {layout.MANIFEST}"), data

    def members(self) -> Iterator[Member]:
        """Every further member, its name checked and never twice."""
        seen = {layout.MANIFEST}
        while (member := self._next_member()) is not None:
            if member.name in seen:
                self._fail(f"contains {member.name!r} twice")
            seen.add(member.name)
            if len(seen) > MAX_FILES:
                self._fail(f"has more than {MAX_FILES} members")
            yield member
        self._check_end()

    def chunks(self) -> Iterator[bytes]:
        """The content of the member that was given last."""
        padding = -self._unread % tarfile.BLOCKSIZE
        while self._unread:
            chunk = self._read(min(self._unread, CHUNK_BYTES))
            self._unread -= len(chunk)
            yield chunk
        self._read(padding)

    def _next_member(self) -> Member | None:
        """None at the end of the archive."""
        if self._unread:
            raise AssertionError("the content of the previous member was not read")
        block = self._read(tarfile.BLOCKSIZE)
        if not any(block):
            return None
        try:
            header = header_of(block)
        except ValueError as error:
            self._fail(str(error))
        name = layout.check_name(header.name)
        self._unread = header.size
        return Member(name, header.isdir(), header.size)

    def _check_end(self) -> None:
        """After the last member nothing but the padding of tar may follow."""
        rest = self._some(tarfile.RECORDSIZE + 1)
        while len(rest) <= tarfile.RECORDSIZE and (more := self._some(tarfile.RECORDSIZE)):
            rest += more
        if any(rest) or len(rest) > tarfile.RECORDSIZE:
            self._fail("contains data after its end")

    def _read(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            more = self._some(size - len(data))
            if not more:
                self._fail("is truncated")
            data += more
        return data

    def _some(self, size: int) -> bytes:
        try:
            data: bytes = self._stream.read(size)
        except zstandard.ZstdError as error:
            if not self._produced and "Unknown frame" in str(error):
                self._fail("is not a packed capsule, or its first bytes are damaged", hint=_NO_ARCHIVE)
            self._fail(f"cannot be decompressed: {error}")
        self._produced += len(data)
        allowed = self._limits.floor_bytes + self._limits.ratio * self._file.tell()
        if self._produced > allowed:
            self._fail(
                "becomes suspiciously large when it is unpacked",
                hint="raise the limit if you trust the archive; otherwise do not use it",
            )
        return data

    def _fail(self, problem: str, *, hint: str = _ALTERED) -> NoReturn:
        raise CapsuleError(f"{self.path} {problem}", hint=hint)
