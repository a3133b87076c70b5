"""What an emulated rank prints: kept in a file, or shown as it comes."""

from __future__ import annotations

import contextlib
import os
import select
from collections.abc import Callable
from pathlib import Path
from shlex import quote
from threading import Thread
from typing import Protocol

from prismdbg.model.plain_text import plain

MOST_BYTES = 8 << 20
NEWEST_BYTES = 64 << 10
SHOWN_LINES, SHOWN_CHARACTERS = 20, 500
READ_BYTES = 1 << 16
OURS = b"prismdbg: "

Say = Callable[[str], None]


class RankOutput(Protocol):
    """stdout, stderr: descriptors for the rank's process; None for ours."""

    stdout: int | None
    stderr: int | None

    def follow(self, end_fd: int) -> None:
        """Once the rank's process has started. end_fd: can be read when it has ended."""

    def finish(self) -> None:
        """When it has ended, or was never started."""

    def last_lines(self) -> str:
        """Of what nobody has seen yet."""

    def advice(self, *, stays: bool) -> str:
        """How to see it. stays: whether the run folder is kept."""


class ShownOutput:
    """`stdout`: where its standard output goes."""

    def __init__(self, stdout: int | None) -> None:
        self.stdout = stdout
        self.stderr: int | None = None

    def follow(self, end_fd: int) -> None:
        return None

    def finish(self) -> None:
        return None

    def last_lines(self) -> str:
        return ""

    def advice(self, *, stays: bool) -> str:
        return "see its output above"


class KeptOutput:
    """Both streams in one file: the first `MOST_BYTES`, and of what follows the newest `NEWEST_BYTES`.

    say: is told what the recorder in the rank says, without its mark."""

    def __init__(self, path: Path, say: Say) -> None:
        self._path, self._say = path, say
        path.parent.mkdir(mode=0o700, exist_ok=True)
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600))
        self._read_fd, self._write_fd = os.pipe()
        self.stdout: int | None = self._write_fd
        self.stderr: int | None = self._write_fd
        self._written = self._unwritten = 0
        self._newest = self._line = b""
        self._thread: Thread | None = None

    def follow(self, end_fd: int) -> None:
        self._close_write()
        self._thread = Thread(target=self._keep_all, args=(end_fd,), daemon=True)
        self._thread.start()

    def finish(self) -> None:
        self._close_write()
        if self._thread is not None:
            self._thread.join()
        if self._read_fd >= 0:
            os.close(self._read_fd)
        self._read_fd = -1

    def last_lines(self) -> str:
        lines = self._newest.decode("utf-8", "replace").splitlines()[-SHOWN_LINES:]
        return "\n".join(f"| {plain(line)[:SHOWN_CHARACTERS]}" for line in lines)

    def advice(self, *, stays: bool) -> str:
        where = f"see its output in {quote(str(self._path))}" if stays else "see the end of its output above"
        return where if self._newest else "run the program by itself: it printed nothing"

    def _close_write(self) -> None:
        if self._write_fd >= 0:
            os.close(self._write_fd)
        self._write_fd = -1

    def _keep_all(self, end_fd: int) -> None:
        """What the process wrote is in the pipe when it has ended. One that it left behind may hold the pipe open."""
        poll = select.poll()
        poll.register(self._read_fd, select.POLLIN)
        poll.register(end_fd, select.POLLIN)
        while any(descriptor == self._read_fd for descriptor, _ in poll.poll()):
            data = os.read(self._read_fd, READ_BYTES)
            if not data:
                break
            self._keep(data)
            self._tell(data)
        if self._unwritten:
            newest = self._newest[-self._unwritten :]
            self._write(b"\n... %d bytes left out\n" % (self._unwritten - len(newest)) + newest)

    def _keep(self, data: bytes) -> None:
        self._newest = (self._newest + data)[-NEWEST_BYTES:]
        room = max(MOST_BYTES - self._written, 0)
        self._write(data[:room])
        self._unwritten += len(data[room:])

    def _tell(self, data: bytes) -> None:
        *lines, self._line = (self._line + data).split(b"\n")
        for line in lines:
            if line.startswith(OURS):
                self._say(line[len(OURS) :].decode("utf-8", "replace"))
        self._line = self._line[:READ_BYTES]

    def _write(self, data: bytes) -> None:
        """A disk that is full costs the rank nothing but its output."""
        self._written += len(data)
        if data:
            with contextlib.suppress(OSError), self._path.open("ab") as file:
                file.write(data)
