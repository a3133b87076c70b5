"""When a file was made, which Python's `os.stat` does not tell on Linux."""

from __future__ import annotations

import ctypes
import os
import struct

# linux/stat.h: `struct statx` has its mask at byte 0 and the time of birth (seconds, nanoseconds) at byte 80.
_AT_FDCWD, _AT_SYMLINK_NOFOLLOW, _STATX_BTIME = -100, 0x100, 0x800
_SIZE, _BORN_AT = 256, 80


def birth_ns(path: str) -> int:
    """In nanoseconds since 1970; 0 where the file is gone, or its file system or libc does not know it."""
    statx = getattr(ctypes.CDLL(None, use_errno=True), "statx", None)
    found = ctypes.create_string_buffer(_SIZE)
    if statx is None or statx(_AT_FDCWD, os.fsencode(path), _AT_SYMLINK_NOFOLLOW, _STATX_BTIME, found):
        return 0
    (mask,) = struct.unpack_from("<I", found)
    seconds, nanoseconds = struct.unpack_from("<qI", found, _BORN_AT)
    return seconds * 1_000_000_000 + nanoseconds if mask & _STATX_BTIME else 0
