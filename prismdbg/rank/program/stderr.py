"""What a rank says to its user. Standard library only: it is needed before torch is there."""

from __future__ import annotations

import contextlib
import sys


def say(text: str) -> None:
    """One line on stderr, after our name. Raises nothing: the disk may be full that stderr is written to, its reader
    gone, or the stream one of the program's own. Where there is none, `print` would write to stdout."""
    if sys.stderr is None:
        return
    with contextlib.suppress(Exception):
        print(f"prismdbg: {text}", file=sys.stderr)
