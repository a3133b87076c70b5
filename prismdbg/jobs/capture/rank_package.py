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

from prismdbg.capsule.limits import MAX_RANK_PACKAGE_BYTES, MAX_RANK_PACKAGE_FILES, MAX_WINDOW_BYTES
from prismdbg.errors import CapsuleError
from prismdbg.jobs.injection import RANK_HALF
from prismdbg.jobs.storage.plain_tar import plain_files

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_./-]*\.(py|pyc|h|cpp)")
_HINT = "fetch the capsule again: this copy is damaged or was altered"


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
        reader = zstandard.ZstdDecompressor(max_window_size=MAX_WINDOW_BYTES).stream_reader(data)
        plain = reader.read(MAX_RANK_PACKAGE_BYTES + 1)
        if len(plain) > MAX_RANK_PACKAGE_BYTES:
            raise ValueError(f"unpacks to more than {MAX_RANK_PACKAGE_BYTES >> 20} MiB")
        members = [_checked(number, *member) for number, member in enumerate(plain_files(plain))]
        folder.mkdir()
        for member, content in members:
            path = folder / member.name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
            path.chmod(0o644)
            os.utime(path, (int(member.mtime), int(member.mtime)))  # byte code is used only where it fits its source
        for made in (folder, *filter(Path.is_dir, folder.rglob("*"))):  # the rank may be another user than we are
            made.chmod(0o755)
    except (zstandard.ZstdError, OSError, OverflowError, ValueError) as error:
        raise CapsuleError(f"the rank's part of prismdbg {str(error)[:200]}", hint=_HINT) from error


def _files(package: Path) -> Iterator[Path]:
    for part in RANK_HALF:
        path = package / part
        found = [path] if path.is_file() else path.rglob("*")
        yield from sorted(
            file for file in found if file.is_file() and _NAME.fullmatch(file.relative_to(package).as_posix())
        )


def _checked(number: int, member: tarfile.TarInfo, content: bytes) -> tuple[tarfile.TarInfo, bytes]:
    name = member.name
    if not _NAME.fullmatch(name) or ".." in name or "//" in name or number >= MAX_RANK_PACKAGE_FILES:
        raise ValueError(f"must not contain {name[:60]!r}")
    return member, content
