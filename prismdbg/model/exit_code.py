"""Exit codes as subprocess and as a shell give them, and the names of signals."""

from __future__ import annotations

import signal


def as_shell(code: int) -> int:
    """subprocess: minus the signal that ended it; a shell: 128 plus its number."""
    return code if code >= 0 else 128 - code


def signal_name(number: int) -> str:
    """`SIGKILL`; `signal 40` of one that has no name."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
