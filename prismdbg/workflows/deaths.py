"""In which order processes died, to the millisecond, and of which signal: one thread that waits on their pidfds."""

from __future__ import annotations

import contextlib
import os
import select
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_EXIT_CODE = 49  # of the fields of /proc/PID/stat after the name
_SIGNAL = 0x7F


@dataclass(frozen=True, slots=True, kw_only=True)
class Death:
    """`signal`: that ended it; 0 where it ended by itself, None where it was gone before one could look."""

    name: str
    wall_ns: int
    signal: int | None

    def to_json(self) -> dict[str, Any]:
        return {"rank": self.name, "wall_ns": self.wall_ns, "signal": self.signal}


class DeathWatch:
    """`watch` processes as they appear; `order` lists those that died, first first, `deaths` how."""

    def __init__(self) -> None:
        self._poll = select.poll()
        self._names: dict[int, tuple[str, int]] = {}
        self._dead: list[Death] = []
        self._wake_read, self._wake_write = os.pipe()
        self._poll.register(self._wake_read, select.POLLIN)
        threading.Thread(target=self._run, name="prismdbg-deaths", daemon=True).start()

    def watch(self, name: str, pid: int) -> None:
        try:
            descriptor = os.pidfd_open(pid)
        except ProcessLookupError:
            self._dead.append(Death(name=name, wall_ns=time.time_ns(), signal=None))
            return
        self._names[descriptor] = name, pid
        self._poll.register(descriptor, select.POLLIN)
        os.write(self._wake_write, b"x")  # the thread is inside poll() with the old set

    def order(self) -> list[str]:
        return [death.name for death in self._dead]

    def deaths(self) -> tuple[Death, ...]:
        return tuple(self._dead)

    def _run(self) -> None:
        while True:
            for descriptor, _ in self._poll.poll():
                if descriptor == self._wake_read:
                    os.read(self._wake_read, 64)
                    continue
                self._poll.unregister(descriptor)
                name, pid = self._names.pop(descriptor)
                self._dead.append(Death(name=name, wall_ns=time.time_ns(), signal=_signal_of(pid)))
                with contextlib.suppress(OSError):
                    os.close(descriptor)


def _signal_of(pid: int) -> int | None:
    """Of a process that is dead and not yet waited for by its parent."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return int(fields[_EXIT_CODE]) & _SIGNAL if fields[0] in ("Z", "X") else None
