"""Where a rank's files are written: at once on a file system of this machine; on any other one (NFS, FUSE, a parallel
one), whose server may stop to answer, by a thread of ours, in order, with a bounded queue. As in `native/log`.
"""

from __future__ import annotations

import errno
import os
import threading
from collections import deque
from collections.abc import Callable

from prismdbg.settings import file_system
from prismdbg.settings.own_thread import start_own_thread

_MOST_OPTIONAL_BYTES = 64 << 20
_MOST_WAITING_BYTES = _MOST_OPTIONAL_BYTES + (16 << 20)  # events go on where payloads cannot
_TASK_BYTES = 1 << 10  # what a task itself takes, about


class WriteQueue:
    """Thread safe. A forked child has none of the tasks: it may neither post nor wait."""

    def __init__(self, is_direct: bool) -> None:
        self.is_direct = is_direct
        self._pid = os.getpid()
        self._changed = threading.Condition()
        self._tasks: deque[tuple[int, Callable[[], object]]] = deque()  # the first one is under way
        self._waiting_bytes = 0  # of those that are not large
        self._has_large = False
        self._failure = ""  # of a task: those behind it are dropped
        self._refusal = ""  # no further task is taken; those that wait are done
        self._thread: threading.Thread | None = None

    def check(self) -> None:
        """`OSError` once a task has failed, or could not be taken."""
        if failure := self._failure or self._refusal:
            raise OSError(errno.EIO, failure)

    def do(self, size_bytes: int, task: Callable[[], object], *, is_required: bool = True) -> None:
        """Now, or by the thread. `size_bytes`: what the task keeps in memory until then. Raises `OSError` where too
        much waits, and from then on always if the task `is_required`: what follows it means nothing without it. The
        others leave some of the room to them."""
        if self.is_direct:
            task()
            return
        size_bytes += _TASK_BYTES
        with self._changed:
            self.check()
            if not self._has_room(size_bytes, is_required):
                refusal = "the file system of the log is too slow, or does not answer"
                self._refusal = refusal if is_required else ""
                raise OSError(errno.EIO, refusal)
            self._count(size_bytes, 1)
            self._tasks.append((size_bytes, task))
            if self._thread is None:
                self._thread = start_own_thread("prismdbg-keeper", self._run)
            self._changed.notify_all()

    def _has_room(self, size_bytes: int, is_required: bool) -> bool:
        if _is_large(size_bytes):
            return not self._has_large
        most = _MOST_WAITING_BYTES if is_required else _MOST_OPTIONAL_BYTES
        return self._waiting_bytes + size_bytes <= most

    def _count(self, size_bytes: int, sign: int) -> None:
        if _is_large(size_bytes):
            self._has_large = sign > 0
        else:
            self._waiting_bytes += sign * size_bytes

    def flush(self) -> None:
        """What was posted before is written. `OSError` where it cannot be, or takes longer than the job may wait."""
        if self.is_direct or self._pid != os.getpid():
            return
        with self._changed:
            if not self._changed.wait_for(lambda: not self._tasks, file_system.LONGEST_WAIT_S):
                raise OSError(errno.EBUSY, "the file system of the log does not answer")
        self.check()

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._tasks)
                size_bytes, task = self._tasks[0]
            failure = self._failure or _failure_of(task)
            with self._changed:
                self._failure = self._failure or failure
                self._count(size_bytes, -1)
                self._tasks.popleft()
                self._changed.notify_all()


def _is_large(size_bytes: int) -> bool:
    """Larger than all the payloads that wait may be together: one such task waits besides them."""
    return size_bytes > _MOST_OPTIONAL_BYTES


def _failure_of(task: Callable[[], object]) -> str:
    try:
        task()
    except Exception as error:
        return str(error) or repr(error)
    return ""
