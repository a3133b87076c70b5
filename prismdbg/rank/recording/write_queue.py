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

_MOST_WAITING_BYTES = 64 << 20
_TASK_BYTES = 1 << 10  # what a task itself takes, about


class WriteQueue:
    """Thread safe. A forked child has none of the tasks: it may neither post nor wait."""

    def __init__(self, is_direct: bool) -> None:
        self.is_direct = is_direct
        self._pid = os.getpid()
        self._changed = threading.Condition()
        self._tasks: deque[tuple[int, Callable[[], object]]] = deque()  # the first one is under way
        self._waiting_bytes = 0
        self._failure = ""  # of a task: those behind it are dropped
        self._refusal = ""  # no further task is taken; those that wait are done
        self._thread: threading.Thread | None = None

    def check(self) -> None:
        """`OSError` once a task has failed, or could not be taken."""
        if failure := self._failure or self._refusal:
            raise OSError(errno.EIO, failure)

    def do(self, size_bytes: int, task: Callable[[], object]) -> None:
        """Now, or by the thread. `size_bytes`: what the task keeps in memory until then."""
        if self.is_direct:
            task()
            return
        size_bytes += _TASK_BYTES
        with self._changed:
            self.check()
            if self._waiting_bytes and self._waiting_bytes + size_bytes > _MOST_WAITING_BYTES:
                self._refusal = "the file system of the log is too slow, or does not answer"
                self.check()
            self._waiting_bytes += size_bytes
            self._tasks.append((size_bytes, task))
            if self._thread is None:
                self._thread = start_own_thread("prismdbg-keeper", self._run)
            self._changed.notify_all()

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
                self._waiting_bytes -= size_bytes
                self._tasks.popleft()
                self._changed.notify_all()


def _failure_of(task: Callable[[], object]) -> str:
    try:
        task()
    except Exception as error:
        return str(error) or repr(error)
    return ""
