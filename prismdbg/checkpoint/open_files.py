"""Files that a rank had open for writing when it was dumped, kept as they were then: the job goes on writing them."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from prismdbg.checkpoint.images import OpenFile, ProcessImage

_CHUNK_BYTES = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptFile:
    """copy: its first `size_bytes`; None where it was too large or unreadable, so that only its length is known."""

    path: str
    size_bytes: int
    mode: int
    copy: Path | None


def keep_written(image: ProcessImage, into: Path, *, limit_bytes: int) -> tuple[KeptFile, ...]:
    """Copies into the folder `into`. To be called while the rank still stands still.

    Files that are only read are not among them, and not what standard output went to: a restore replaces that.
    """
    into.mkdir(mode=0o700, parents=True, exist_ok=True)
    replaced = {standard.key for standard in image.standards}
    written = {file.path: file for file in image.files if file.is_written and file.path.lstrip("/") not in replaced}
    return tuple(_keep(file, into / str(number), limit_bytes) for number, file in enumerate(written.values()))


def _keep(file: OpenFile, copy: Path, limit_bytes: int) -> KeptFile:
    kept: Path | None = copy
    if file.size_bytes > limit_bytes or not _copy(Path(file.path), copy, file.size_bytes):
        kept = None
        copy.unlink(missing_ok=True)
    return KeptFile(path=file.path, size_bytes=file.size_bytes, mode=file.mode, copy=kept)


def _copy(source: Path, target: Path, size_bytes: int) -> bool:
    """False where it cannot be read, or has become shorter."""
    try:
        with source.open("rb") as reading, target.open("xb") as writing:
            os.fchmod(writing.fileno(), 0o600)
            left = size_bytes
            while left and (data := reading.read(min(left, _CHUNK_BYTES))):
                writing.write(data)
                left -= len(data)
    except OSError:
        return False
    return left == 0
