"""What child processes of a rank open (the workers of its DataLoader, say): they tell it in a file of their rank's, for
the log has one writer.

The file is kept open by nobody: a checkpoint needs no copy of it. It is on a file system of this machine.
"""

from __future__ import annotations

import contextlib
import functools
import json
import multiprocessing
import multiprocessing.process
import os
import sys
import threading
from collections.abc import Callable, Sequence
from typing import Any

from torch.utils.data import dataloader

from prismdbg.rank.program.not_compiled import not_compiled
from prismdbg.settings.process_stat import fields_of

Told = tuple[str, str, int]  # kind of note, path, and the monotonic time in ns at which it was named

_ABOVE = 3  # processes: a worker, the server that forks workers, the rank
_PARENT = 1  # of the fields of a process
_SERVER = "multiprocessing.forkserver"
_MOST_BYTES = 8 << 20  # of a file; that of a launcher is read by nobody
_READ_BYTES = 1 << 20  # at a time
_LOOKED_AT = 32  # children: the workers of a loader open the same


class ChildNotes:
    """`folder`: in which each rank has a file, named by its PID; empty for none."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._read_bytes = 0
        self._reading = threading.Lock()
        self._made_in = os.getpid()
        self._own = self._file_of(self._made_in)
        self._told_to: tuple[int, str] = (0, "")  # the child's PID, and its rank's file

    def begin(self) -> None:
        """In any process that may become a rank: from now on its children find its file. Not in the server that forks
        workers. `OSError` where there can be none."""
        self._own = self._file_of(os.getpid())
        if self._folder and not any(_SERVER in word for word in sys.orig_argv):
            os.close(os.open(self._own, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600))

    def end(self) -> None:
        if self._folder:
            with contextlib.suppress(OSError):
                os.unlink(self._own)

    def tell(self, found: Sequence[Told]) -> bool:
        """In a child: whether it has a rank that reads them. Raises `OSError`."""
        with contextlib.suppress(FileNotFoundError):  # it has none, or that has ended
            if (path := self._rank_above()) is not None:
                file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
                try:
                    for told in found if os.fstat(file).st_size < _MOST_BYTES else ():  # each is appended as a whole
                        os.write(file, f"{json.dumps(told)}\n".encode())
                finally:
                    os.close(file)
                return True
        return False

    def _rank_above(self) -> str | None:
        """The file of the process that started this one, or of one above that."""
        pid = os.getpid()
        if self._told_to[0] == pid:
            return self._told_to[1]
        is_child = pid != self._made_in or multiprocessing.parent_process() is not None
        above = pid
        for _ in range(_ABOVE if self._folder and is_child else 0):
            above = int(fields_of(above)[_PARENT])
            if os.path.exists(path := self._file_of(above)):
                self._told_to = pid, path
                return path
        return None

    def told(self) -> list[Told]:
        """In a rank: what its children told since the last time; nothing while another thread asks. Raises
        `OSError`."""
        found: list[Told] = []
        if self._folder and os.stat(self._own).st_size > self._read_bytes and self._reading.acquire(blocking=False):
            try:
                while lines := self._read():
                    found += [(kind, path, seen_ns) for kind, path, seen_ns in map(json.loads, lines)]
            finally:
                self._reading.release()
        return found

    def _read(self) -> list[bytes]:
        with open(self._own, "rb") as file:
            file.seek(self._read_bytes)
            whole, end, _ = file.read(_READ_BYTES).rpartition(b"\n")
        self._read_bytes += len(whole) + len(end)
        return whole.splitlines()

    def _file_of(self, pid: int) -> str:
        return os.path.join(self._folder, f"{pid}.opened")


def children() -> list[int]:
    """PIDs of those that `multiprocessing` started. Its own function for it would wait for those that have ended."""
    known = list(getattr(multiprocessing.process, "_children", ()))[:_LOOKED_AT]
    return [pid for child in known if (pid := child.pid) is not None]


def after_each_batch(listen: Callable[[], None]) -> None:
    """`listen` is called in the loop of a DataLoader that has workers: what was read for a batch is told before the
    batch is used."""
    base = dataloader._BaseDataLoaderIter
    original = base.__next__

    @not_compiled
    @functools.wraps(original)
    def next_batch(self: Any) -> Any:
        batch = original(self)
        if self._num_workers:
            listen()
        return batch

    base.__next__ = next_batch
