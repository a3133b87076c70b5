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
_STARTED_BY_ANOTHER = "multiprocessing."  # of the command line of its spawned processes, and of the server that forks
_RENEWED_BYTES = 4 << 20  # what a rank has read of its file when it begins another one
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

    def begin_early(self) -> None:
        """In a process that may become a rank, not in a worker: what its children tell before that is kept."""
        if not any(_STARTED_BY_ANOTHER in word for word in sys.orig_argv):
            self._make(os.O_TRUNC)  # an ended process may have had the same PID

    def begin(self) -> None:
        """In a rank: from now on its children find its file. `OSError` where there can be none."""
        self._make(0)

    def _make(self, flags: int) -> None:
        self._own = self._file_of(os.getpid())
        if self._folder:
            os.close(os.open(self._own, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | flags, 0o600))

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
                    if os.fstat(file).st_size > _MOST_BYTES:
                        return False
                    for told in found:  # each is appended as a whole
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
                found += self._read_all(self._own)
                if self._read_bytes > _RENEWED_BYTES:
                    found += self._renewed()
            finally:
                self._reading.release()
        return found

    def _renewed(self) -> list[Told]:
        """What was told meanwhile. A child that finds no file tries again later."""
        old = f"{self._own}.old"
        os.replace(self._own, old)
        self.begin()
        found = self._read_all(old)
        os.unlink(old)
        self._read_bytes = 0
        return found

    def _read_all(self, path: str) -> list[Told]:
        found: list[Told] = []
        while lines := self._read(path):
            for line in lines:
                with contextlib.suppress(ValueError):  # one that a full file system has cut
                    kind, name, seen_ns = json.loads(line)
                    found.append((kind, name, seen_ns))
        return found

    def _read(self, path: str) -> list[bytes]:
        with open(path, "rb") as file:
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
    base = getattr(dataloader, "_BaseDataLoaderIter", None)
    if base is None:  # a torch that has it elsewhere: what workers read is told at the next step
        return
    original = base.__next__

    @not_compiled
    @functools.wraps(original)
    def next_batch(self: Any) -> Any:
        batch = original(self)
        if getattr(self, "_num_workers", 0):
            listen()
        return batch

    base.__next__ = next_batch
