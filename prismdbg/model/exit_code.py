"""Exit codes as subprocess and as a shell give them."""

from __future__ import annotations


def as_shell(code: int) -> int:
    """subprocess: minus the signal that ended it; a shell: 128 plus its number."""
    return code if code >= 0 else 128 - code
