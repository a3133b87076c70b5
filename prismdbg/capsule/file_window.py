"""The bytes of a file by position, read as they are asked for.

A file that somebody writes, or cuts, meanwhile is never mapped: a load behind its new end would be a SIGBUS.
"""

from __future__ import annotations

import os

_CHUNK_BYTES = 64 << 10


class FileWindow:
    """`window[first:last]` is what stands there, shorter where the file ends before. Its length is that at the open."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._size_bytes = os.fstat(descriptor).st_size
        self._first, self._chunk = 0, b""

    def __len__(self) -> int:
        return self._size_bytes

    def __getitem__(self, span: slice) -> bytes:
        first, last = span.start, min(span.stop, self._size_bytes)
        if first < self._first or last > self._first + len(self._chunk):
            self._first, self._chunk = first, os.pread(self._descriptor, max(last - first, _CHUNK_BYTES), first)
        return self._chunk[first - self._first : last - self._first]
