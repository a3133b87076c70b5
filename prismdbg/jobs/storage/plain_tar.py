"""Headers of tar archives, and of them only the plain ones: files and folders, with one size and one name each.

No links, no devices, no holes, no extension records: `tarfile` would follow what they say to any size and any place.
"""

from __future__ import annotations

import tarfile
from collections.abc import Iterator

_USTAR = (b"ustar\x0000", b"ustar  \0")
_TYPES = (tarfile.REGTYPE, tarfile.DIRTYPE)


def header_of(block: bytes) -> tarfile.TarInfo:
    """`ValueError` says what is wrong with it, as a sentence goes on."""
    if block[257:265] not in _USTAR or block[156:157] not in _TYPES:
        raise ValueError("contains a member that is neither a regular file nor a folder")
    try:
        header = tarfile.TarInfo.frombuf(block, "ascii", "strict")
    except (tarfile.HeaderError, ValueError) as error:
        raise ValueError(f"has a damaged header: {error}") from None
    if header.size < 0 or header.mtime < 0 or (header.isdir() and header.size) or header.linkname:
        raise ValueError(f"has an impossible header for {header.name[:60]!r}")
    return header


def plain_files(data: bytes) -> Iterator[tuple[tarfile.TarInfo, bytes]]:
    """The files of an archive that is in memory, each with its content, up to the archive's end."""
    at = 0
    while at < len(data) and any(block := data[at : at + tarfile.BLOCKSIZE]):
        header = header_of(block)
        at += tarfile.BLOCKSIZE
        content = data[at : at + header.size]
        if len(content) < header.size:
            raise ValueError("is truncated")
        at += header.size + -header.size % tarfile.BLOCKSIZE
        if not header.isdir():
            yield header, content
