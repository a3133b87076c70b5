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
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
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

    def begin(self) -> None:
        """In any process that may become a rank: from now on its children find its file. Not in the server that forks
        workers. `OSError` where there can be none."""
        if self._folder and not any(_SERVER in word for word in sys.orig_argv):
            _file_of(self._folder, os.getpid()).open("ab").close()

    def end(self) -> None:
        if self._folder:
            with contextlib.suppress(OSError):
                _file_of(self._folder, os.getpid()).unlink()

    def tell(self, found: Sequence[Told]) -> bool:
        """In a child: whether it has a rank that reads them. Raises `OSError`."""
        pid = os.getpid()
        is_child = pid != self._made_in or multiprocessing.parent_process() is not None
        for _ in range(_ABOVE if self._folder and is_child else 0):
            pid = int(fields_of(pid)[_PARENT])
            with contextlib.suppress(FileNotFoundError):
                file = os.open(_file_of(self._folder, pid), os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
                try:
                    for told in found if os.fstat(file).st_size < _MOST_BYTES else ():  # each is appended as a whole
                        os.write(file, f"{json.dumps(told)}\n".encode())
                finally:
                    os.close(file)
                return True
        return False

    def told(self) -> Iterator[Told]:
        """In a rank: what its children told since the last time; nothing while another thread asks. Raises
        `OSError`."""
        if self._folder and self._reading.acquire(blocking=False):
            try:
                yield from self._read(_file_of(self._folder, os.getpid()))
            finally:
                self._reading.release()

    def _read(self, path: Path) -> Iterator[Told]:
        while path.stat().st_size > self._read_bytes:
            with path.open("rb") as file:
                file.seek(self._read_bytes)
                whole, end, _ = file.read(_READ_BYTES).rpartition(b"\n")
            if not end:
                return
            self._read_bytes += len(whole) + len(end)
            for line in whole.splitlines():
                kind, name, seen_ns = json.loads(line)
                yield kind, name, seen_ns


def _file_of(folder: str, pid: int) -> Path:
    return Path(folder, f"{pid}.opened")


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
