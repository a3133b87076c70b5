"""Keeps what a file was when the program read it, where the program is about to write to it: a replay from the start
reads it again.

Small files only, once for each path, only where the run lies on a disk of this machine, for a job never waits for a
server, and only while the program holds no lock of fcntl(2). Whatever fails ends it, and the program goes on.
"""

from __future__ import annotations

import contextlib
import functools
import os
import stat
import sys
import threading
from pathlib import Path
from typing import Any

from prismdbg.capsule.secrets.private_files import is_credential
from prismdbg.rank.program.interruptions import is_for_the_program
from prismdbg.settings.file_system import is_local
from prismdbg.settings.overwritten_copies import FOLDER, kept_name

MOST_BYTES = 16 << 20  # of one file; what is larger is not in a capsule either
MOST_IN_ALL = 256 << 20  # of one process
MOST_FILES = 1000
_CHUNK = 1 << 20


class Overwritten:
    """`keep` before a file is written to."""

    def __init__(self, run: str) -> None:
        self._folder = os.path.join(run, FOLDER)
        self._is_on = is_local(Path(run))
        self._seen: set[str] = set()
        self._bytes = 0

    def keep(self, path: str) -> None:
        """Raises nothing."""
        if not self._is_on or path in self._seen or len(self._seen) >= MOST_FILES:
            return
        self._seen.add(path)
        try:
            if not is_credential(path) and not _holds_locks():  # a capsule names those by their hash
                self._keep(path)
        except Exception as error:  # a full disk, say: there is nothing to say it to
            if is_for_the_program(error):
                self._seen.discard(path)  # the program may try again
                raise
            self._is_on = False

    def _keep(self, path: str) -> None:
        try:
            source = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:  # not there, or not ours to read: then nobody has read it
            return
        try:
            status = os.fstat(source)
            if stat.S_ISREG(status.st_mode) and status.st_size <= min(MOST_BYTES, MOST_IN_ALL - self._bytes):
                self._bytes += status.st_size
                self._copy(source, status, os.path.join(self._folder, kept_name(path, status.st_mtime_ns)))
        finally:
            os.close(source)

    def _copy(self, source: int, status: os.stat_result, target: str) -> None:
        if os.path.exists(target):  # another rank was first
            return
        os.makedirs(self._folder, mode=0o700, exist_ok=True)
        partial = f"{target}.{os.getpid()}.{threading.get_native_id()}"
        out = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, status.st_mode & 0o777)
        try:
            left = status.st_size
            while left > 0 and (data := os.read(source, min(left, _CHUNK))):
                left -= len(data)
                while data:
                    data = data[os.write(out, data) :]
            os.utime(out, ns=(status.st_atime_ns, status.st_mtime_ns))
            now = os.fstat(source)
            if left == 0 and (now.st_size, now.st_mtime_ns) == (status.st_size, status.st_mtime_ns):
                with contextlib.suppress(FileExistsError):  # another rank was faster
                    os.link(partial, target)
            # else another rank wrote to it meanwhile: this is no copy of what was read
        finally:
            os.close(out)
            with contextlib.suppress(OSError):
                os.unlink(partial)


def _holds_locks() -> bool:
    """Whether this process has locked any part of a file by fcntl(2): it loses all its locks of a file with the first
    descriptor of it that it closes, ours too."""
    held = (line.split() for line in Path("/proc/locks").read_text().splitlines())
    return any(words[1:2] == ["POSIX"] and str(os.getpid()) in words for words in held)


def watch_torch_save(about_to_write: Any) -> None:
    """`torch.save` to a path opens it in C++, which no audit event tells. Does nothing where torch saves otherwise."""
    serialization = sys.modules.get("torch.serialization")
    original = getattr(serialization, "_open_zipfile_writer", None)
    if serialization is None or original is None:
        return

    paths: Any = str | os.PathLike  # names of this module are gone when Python ends

    @functools.wraps(original)
    def opened(name_or_buffer: Any) -> Any:
        if isinstance(name_or_buffer, paths):
            about_to_write(name_or_buffer)
        return original(name_or_buffer)

    serialization._open_zipfile_writer = opened  # type: ignore[attr-defined]
