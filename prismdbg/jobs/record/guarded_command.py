"""Runs a shell command, and ends it and all that it started with whoever asked for it, or when its time is up.

A script, started as `guarded_command.py LIFELINE SECONDS COMMAND`. LIFELINE is the reading end of a pipe that closes
when the one who asked dies. It needs only the standard library.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import sys

TOO_LONG = 124


def main(lifeline: int, bound_s: float, command: str) -> int:
    """The command's exit code; TOO_LONG where it was ended. What it left running in its group is ended, too."""
    with subprocess.Popen(["/bin/sh", "-c", command], process_group=0) as shell:
        try:
            with selectors.DefaultSelector() as selector:
                ended = os.pidfd_open(shell.pid)
                selector.register(ended, selectors.EVENT_READ)
                selector.register(lifeline, selectors.EVENT_READ)
                seen = {key.fd for key, _ in selector.select(bound_s)}
        finally:
            with contextlib.suppress(ProcessLookupError):  # nothing is left of it
                os.killpg(shell.pid, signal.SIGKILL)
    if ended not in seen:
        return TOO_LONG
    return shell.returncode if shell.returncode >= 0 else 128 - shell.returncode


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), float(sys.argv[2]), sys.argv[3]))
