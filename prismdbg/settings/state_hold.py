"""Keeps the ranks of a node from dropping state snapshots while their supervisor looks into an incident.

The supervisor writes a file beside their folders and removes it; a rank looks for it before it writes a snapshot.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from prismdbg.model.private_file import private
from prismdbg.settings.process_identity import is_seen, this_process
from prismdbg.settings.process_stat import start_ticks

LONGEST_S = 600.0  # a supervisor that a rank cannot see may have been killed
_NAME = ".hold"


def hold_file(states: Path, node: str) -> Path:
    """`node`: as its supervisor is called in a job of several; empty in any other."""
    return states / (f"{_NAME}-{node}" if node else _NAME)


def hold(file: Path) -> None:
    """From now on until `release`, or until this process ends."""
    new = file.with_name(f"{file.name}.new")
    try:
        with open(new, "w", opener=private) as out:
            out.write(json.dumps(this_process()))
        new.replace(file)
    except OSError:
        with suppress(OSError):
            new.unlink(missing_ok=True)
        raise


def release(file: Path) -> None:
    file.unlink(missing_ok=True)


def remove_abandoned_holds(states: Path) -> None:
    """Those of supervisors that were killed."""
    with suppress(OSError):
        for file in states.glob(f"{_NAME}*"):
            _is_abandoned(file)


class HoldWatch:
    """Of one rank."""

    def __init__(self, file: Path, now_s: Callable[[], float] = time.monotonic) -> None:
        self._file = file
        self._now_s = now_s
        self._seen: tuple[int, int] | None = None
        self._since_s = 0.0

    def is_on(self) -> bool:
        """False also where its supervisor has ended, and once it has lasted too long. A file that cannot be looked at
        may be there."""
        one = (0, 0)
        try:
            status = self._file.stat()
            one = (status.st_ino, status.st_mtime_ns)
        except FileNotFoundError:
            return False
        except OSError:  # of a file server
            pass
        if one[0] and _is_abandoned(self._file):
            return False
        if self._seen != one:
            self._seen, self._since_s = one, self._now_s()
        return self._now_s() - self._since_s < LONGEST_S


def _is_abandoned(file: Path) -> bool:
    """Whether its process has ended, as far as it can be seen from here. It is removed then."""
    try:
        told = json.loads(file.read_text())
        if not is_seen(told) or start_ticks(int(told["pid"])) == told["started_ticks"]:
            return False
    except FileNotFoundError:  # released
        return True
    except (OSError, ValueError, TypeError, KeyError):  # not ours, or of a file server: it holds for a while
        return False
    with suppress(OSError):
        file.unlink(missing_ok=True)
    return True
