"""Files that their owner alone may read: what a program computes is nobody else's business, whatever its umask is."""

from __future__ import annotations

import os

PRIVATE = 0o600


def private(path: str, flags: int) -> int:
    """`opener` of `open` for writing. No link is followed."""
    return os.open(path, flags | os.O_NOFOLLOW, PRIVATE)
