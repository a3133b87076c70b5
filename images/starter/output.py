"""What the rank prints, in one file outside of its place. If it had a terminal it gets one, which is copied there."""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
import struct
import threading
import time
from collections.abc import Iterator

from exact_paths import open_terminals
from syscalls import PlaceError

TIOCSPTLCK, TIOCGPTPEER = 0x40045431, 0x5441  # linux/tty ioctls: unlock, and the other end
SETTLE_S, RETRY_S = 5.0, 0.01


def hold_output(path: str) -> str:
    """Opens it before the rank can replace the name. A path that always leads to this very file."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    held = os.open(path, flags, 0o600)
    if not stat.S_ISREG(os.fstat(held).st_mode):
        raise PlaceError(f"{path} is not a regular file")
    return f"/proc/self/fd/{held}"


def open_output(held: str) -> int:
    return os.open(held, os.O_WRONLY | os.O_APPEND)


class Copier:
    """Copies what is written to a terminal, in a thread, until nobody has it open. What the rank has written is not in
    the file at once: the kernel hands it on, and then the thread has its turn."""

    def __init__(self, ours: int, copy: int) -> None:
        self._ours, self._copy = ours, copy
        self._mark = b""
        self._seen = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def settle(self, bound_s: float = SETTLE_S) -> bool:
        """All that was written to the terminal so far is in the file; False where the bound is reached. A mark is
        written behind it, which is not copied: nothing else tells what the kernel still has to hand on."""
        if not self._thread.is_alive():
            return True
        deadline_s = time.monotonic() + bound_s
        self._seen.clear()
        left = self._mark = str(int.from_bytes(os.urandom(16), "big")).encode()  # digits, which no terminal changes
        with _opened(fcntl.ioctl(self._ours, TIOCGPTPEER, os.O_WRONLY | os.O_NOCTTY | os.O_NONBLOCK)) as theirs:
            while left and time.monotonic() < deadline_s:
                try:
                    left = left[os.write(theirs, left) :]
                except BlockingIOError:
                    time.sleep(RETRY_S)
        if left:  # what there is of it is copied as well
            self._mark = b""
        return self._seen.wait(max(deadline_s - time.monotonic(), 0))

    def end(self, bound_s: float = SETTLE_S) -> None:
        """The last of it is in the file. Nobody has the terminal open any more."""
        self._thread.join(bound_s)
        if not self._thread.is_alive():
            os.close(self._copy)
            os.close(self._ours)

    def _run(self) -> None:
        waiting = b""
        with contextlib.suppress(OSError):  # EIO: nobody has it open any more
            while data := os.read(self._ours, 1 << 16):
                waiting += data
                mark = self._mark
                before, found, after = waiting.partition(mark) if mark else (waiting, b"", b"")
                if mark and not found:
                    continue  # a part of it may be there
                self._put(before + after)
                waiting = b""
                if found:
                    self._mark = b""
                    self._seen.set()
        with contextlib.suppress(OSError):
            self._put(waiting)

    def _put(self, data: bytes) -> None:
        data = data.replace(b"\r\n", b"\n")
        while data:
            data = data[os.write(self._copy, data) :]


_copiers: list[Copier] = []


def settle_output() -> None:
    """All that the rank has printed so far is in the file; it stands still."""
    for copier in _copiers:
        copier.settle()


def end_output() -> None:
    """Nothing comes any more from a rank that has ended."""
    while _copiers:
        _copiers.pop().end()


def standard_streams(standards: list[tuple[int, str]], output: str) -> dict[str, int]:
    """What takes the place of each file, pipe or terminal that was on standard input and output."""
    streams: dict[str, int] = {}
    for number, key in standards:
        if key in streams or key == "dev/null":
            continue
        if key.startswith("tty["):
            streams[key] = terminal(output)
        elif number == 0:
            streams[key] = os.open("/dev/null", os.O_RDONLY)
        else:
            streams[key] = open_output(output)
    return streams


def terminal(output: str) -> int:
    """The rank's end of one that is copied."""
    ours, theirs = new_terminal()
    _copiers.append(Copier(ours, open_output(output)))
    return theirs


def new_terminal() -> tuple[int, int]:
    """Its two ends, through no link: `/dev/ptmx` is one, and the rank may have put another one there."""
    try:
        ours = open_terminals()
    except PermissionError:  # a plain process of a user: the machine's own terminals
        return os.openpty()
    fcntl.ioctl(ours, TIOCSPTLCK, struct.pack("i", 0))
    return ours, fcntl.ioctl(ours, TIOCGPTPEER, os.O_RDWR | os.O_NOCTTY)


@contextlib.contextmanager
def _opened(number: int) -> Iterator[int]:
    try:
        yield number
    finally:
        os.close(number)
