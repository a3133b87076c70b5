"""The half of prismdbg that runs in a rank, as it was when the rank was recorded: a restored process holds some of
these modules already, and those it imports later must be of the same version.

Into a capsule as one archive; out of it, file by file, for the rank's own place. Nothing of it is ever imported here.
"""

from __future__ import annotations

import io
import os
import re
import tarfile
from collections.abc import Iterator
from pathlib import Path

import zstandard

from prismdbg.errors import CapsuleError

PARTS = ("__init__.py", "errors.py", "model", "capsule", "protocol", "expr", "rank")
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_./-]*\.(py|pyc|h|cpp)")
_MOST_BYTES, _MOST_FILES = 32 << 20, 2000
_HINT = "the capsule was altered or is damaged; do not use it"


def pack(package: Path) -> bytes:
    """The rank's half of the package in this folder, with its byte code: importing it must not take longer."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for path in _files(package):
            try:
                data = path.read_bytes()
            except FileNotFoundError:  # byte code that a rank just replaces
                continue
            info = tarfile.TarInfo(path.relative_to(package).as_posix())
            info.size, info.mode, info.mtime = len(data), 0o644, int(path.stat().st_mtime)
            tar.addfile(info, io.BytesIO(data))
    return zstandard.ZstdCompressor(level=3).compress(buffer.getvalue())


def unpack(data: bytes, folder: Path) -> None:
    """Regular files with plain names only, into a new folder. `CapsuleError` for anything else, before it is made."""
    try:
        plain = zstandard.ZstdDecompressor().stream_reader(data).read(_MOST_BYTES + 1)
        if len(plain) > _MOST_BYTES:
            raise CapsuleError("the rank's half of prismdbg is far too large", hint=_HINT)
        with tarfile.open(fileobj=io.BytesIO(plain), mode="r:") as tar:
            members = list(_members(tar))
            folder.mkdir(mode=0o755)
            for member, content in members:
                path = folder / member.name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content)
                _set_time(path, int(member.mtime))
    except (zstandard.ZstdError, tarfile.TarError, OSError, ValueError) as error:
        raise CapsuleError(f"the rank's half of prismdbg cannot be read: {error}", hint=_HINT) from error


def _files(package: Path) -> Iterator[Path]:
    for part in PARTS:
        path = package / part
        found = [path] if path.is_file() else path.rglob("*")
        yield from sorted(
            file for file in found if file.is_file() and _NAME.fullmatch(file.relative_to(package).as_posix())
        )


def _members(tar: tarfile.TarFile) -> Iterator[tuple[tarfile.TarInfo, bytes]]:
    for count, member in enumerate(tar):
        name = member.name
        if not member.isreg() or not _NAME.fullmatch(name) or ".." in name or "//" in name or count >= _MOST_FILES:
            raise CapsuleError(f"the rank's half of prismdbg may not hold {name[:60]!r}", hint=_HINT)
        content = tar.extractfile(member)
        assert content is not None
        yield member, content.read()


def _set_time(path: Path, time_s: int) -> None:
    """Byte code is used only where it knows its source's time."""
    os.utime(path, (time_s, time_s))
