"""Which processes died, when, and of which signal: a thread that waits on their pidfds.

Those of which one look tells have the same time, and their order is not known: a supervisor that was held, or that had
no processor, looks late, and launchers end the others within milliseconds.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import signal
import struct
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from prismdbg.jobs.record.steady_clock import wall_ns
from prismdbg.model.exit_code import as_shell
from prismdbg.settings.process_stat import fields_of, is_dead, text_of

ASKED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)  # what ends a job, and what launchers end the other ranks with
_FLAGS, _EXIT_CODE = 6, 49  # of the fields of /proc/PID/stat after the name
_PF_EXITING = 0x4  # linux/sched.h
_PIDFD_GET_INFO = 0xC040FF0B  # linux/pidfd.h: _IOWR(0xFF, 11, struct pidfd_info), of 64 bytes
_PIDFD_INFO = struct.Struct("=Q52xi")  # of that the mask and the exit code
_PIDFD_INFO_EXIT = 1 << 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Death:
    """`wall_ns`: when it was seen dead, or dying when another was seen dead. `alive_wall_ns`: when it was last seen
    alive, 0 where it never was. `signal`: that ended it; 0 where it ended by itself, None where it was gone before one
    could look. `code`: its exit code, 128 and the number for a signal."""

    name: str
    wall_ns: int
    signal: int | None
    code: int | None = None
    alive_wall_ns: int = 0

    def to_json(self) -> dict[str, Any]:
        return {
            "rank": self.name,
            "wall_ns": self.wall_ns,
            "alive_wall_ns": self.alive_wall_ns,
            "signal": self.signal,
            "code": self.code,
        }


def perhaps_first(deaths: Sequence[Death]) -> list[Death]:
    """Each of which nobody knows that another died before it: it was not seen alive after one was seen dead."""
    seen_ns = min((death.wall_ns for death in deaths), default=0)
    return [death for death in deaths if death.wall_ns == seen_ns or death.alive_wall_ns < seen_ns]


def likely_first(deaths: Sequence[Death], raised: Mapping[str, bool]) -> Death:
    """`raised`: those that raised, and whether in a collective, as they do where a peer is gone. A rank that did, or
    that was told to end, follows another; so may one that ended without a word and without a signal: Ray ends the
    workers of a rank that raised with an exit code."""

    def distance(death: Death) -> int:
        if death.name in raised:
            return 2 if raised[death.name] else 0
        return 2 if death.signal in ASKED else 0 if death.signal else 1

    return min(perhaps_first(deaths), key=distance)


class DeathWatch:
    """`watch` processes as they appear; `order` lists those that died, as far as it is known first first, `deaths`
    how."""

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self._names: dict[int, tuple[str, int]] = {}
        self._alive_ns: dict[int, int] = {}
        self._dying_ns: dict[int, int] = {}
        self._dead: list[Death] = []
        self._lock = threading.Lock()

    def begin(self) -> None:
        """To look as soon as one dies, not only when somebody asks. `RuntimeError` where no thread can be had."""
        threading.Thread(target=self._run, name="prismdbg-deaths", daemon=True).start()

    def watch(self, name: str, pid: int) -> None:
        with self._lock:
            try:
                descriptor = os.pidfd_open(pid)
            except ProcessLookupError:
                self._dead.append(Death(name=name, wall_ns=wall_ns(), signal=None))
                return
            self._names[descriptor] = name, pid
            self._epoll.register(descriptor, select.EPOLLIN)

    def order(self) -> list[str]:
        return [death.name for death in self.deaths()]

    def deaths(self) -> tuple[Death, ...]:
        """Also of those that died since the thread had a processor."""
        self._look()
        return tuple(self._dead)

    def ends(self) -> dict[str, int]:
        """By name, since when (nanoseconds since 1970) each ends that is dead, or not yet: to give back gigabytes takes
        long."""
        with self._lock:
            dying = {self._names[descriptor][0]: since_ns for descriptor, since_ns in self._dying_ns.items()}
            return dying | {death.name: death.wall_ns for death in self._dead}

    def _run(self) -> None:
        while True:
            self._epoll.poll()
            self._look()

    def _look(self) -> None:
        """Linux lists what is ready in the order in which it became so: a hint, for nothing promises it."""
        with self._lock:
            gone, now_ns = [descriptor for descriptor, _ in self._epoll.poll(0)], wall_ns()
            for descriptor in gone:
                self._epoll.unregister(descriptor)
                name, pid = self._names.pop(descriptor)
                seen_ns = self._dying_ns.pop(descriptor, now_ns)
                status = _wait_status(pid)
                status = _kept_status(descriptor) if status is None else status
                self._dead.append(_death(name, status, seen_ns, self._alive_ns.pop(descriptor, 0)))
                with contextlib.suppress(OSError):
                    os.close(descriptor)
            if gone:  # how long a process takes to end says nothing of when it was told to
                dying = [descriptor for descriptor, (_, pid) in self._names.items() if _is_dying(pid)]
                self._dying_ns = {**dict.fromkeys(dying, now_ns), **self._dying_ns}
            self._alive_ns.update({one: now_ns for one in self._names if one not in self._dying_ns})


def _death(name: str, status: int | None, wall_ns: int, alive_wall_ns: int) -> Death:
    if status is None:
        return Death(name=name, wall_ns=wall_ns, alive_wall_ns=alive_wall_ns, signal=None)
    code = os.waitstatus_to_exitcode(status)
    return Death(
        name=name,
        wall_ns=wall_ns,
        alive_wall_ns=alive_wall_ns,
        signal=max(-code, 0),
        code=as_shell(code),
    )


def _is_dying(pid: int) -> bool:
    """It ends already, or a signal that would end it has reached it and was not taken yet."""
    try:
        flags = int(fields_of(pid)[_FLAGS])
        status = dict(line.split(":\t", 1) for line in text_of(Path(f"/proc/{pid}/status")).splitlines())
        sets = {name: int(status[name], 16) for name in ("SigPnd", "ShdPnd", "SigIgn", "SigBlk", "SigCgt")}
    except OSError:  # it is gone
        return True
    deadly = (sets["SigPnd"] | sets["ShdPnd"]) & ~(sets["SigIgn"] | sets["SigBlk"] | sets["SigCgt"])
    return bool(flags & _PF_EXITING) or any(deadly >> (number - 1) & 1 for number in (*ASKED, signal.SIGKILL))


def _wait_status(pid: int) -> int | None:
    """Of a process that is dead and not yet waited for by its parent."""
    try:
        fields = fields_of(pid)
    except OSError:
        return None
    return int(fields[_EXIT_CODE]) if is_dead(fields) else None


def _kept_status(descriptor: int) -> int | None:
    """Of one whose parent was faster: from Linux 6.15 on its pidfd knows."""
    info = bytearray(_PIDFD_INFO.pack(_PIDFD_INFO_EXIT, 0))
    try:
        fcntl.ioctl(descriptor, _PIDFD_GET_INFO, info)
    except OSError:
        return None
    mask, status = _PIDFD_INFO.unpack(info)
    return status if mask & _PIDFD_INFO_EXIT else None
