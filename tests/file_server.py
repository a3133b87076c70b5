"""A folder on a file system with a server, as NFS and sshfs have one: bindfs, a process that can be stopped, and whose
replies can be slow."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
from c_library import build, compiler
from waiting import wait_for

STOP_BOUND_S = 20.0
_UNCACHED = ("-o", "attr_timeout=0,entry_timeout=0,negative_timeout=0")  # the kernel does not answer in its place


def missing() -> str:
    """Empty, or why there can be none here."""
    if shutil.which("bindfs") is None or not Path("/dev/fuse").exists():
        return "bindfs or /dev/fuse is missing (apt-get install bindfs)"
    return "mounting needs root" if os.geteuid() != 0 else ""


def no_slow_one() -> str:
    """Empty, or why none can be slow here."""
    return missing() or ("" if compiler() else "a slow file server needs a C compiler (apt-get install gcc)")


class FileServer:
    def __init__(self, process: psutil.Popen, connection: int, sign: Path) -> None:
        """`connection`: a descriptor of the folder in which the kernel says how many requests have no answer. `sign`:
        while it is there, replies are slow."""
        self.process = process
        self._connection = connection
        self._sign = sign

    @contextmanager
    def slow(self) -> Iterator[None]:
        """Each reply comes `reply_s` later."""
        self._sign.touch()
        try:
            yield
        finally:
            self._sign.unlink()

    def _waiting(self) -> int:
        descriptor = os.open("waiting", os.O_RDONLY, dir_fd=self._connection)
        try:
            return int(os.read(descriptor, 20))
        finally:
            os.close(descriptor)

    def stop(self) -> None:
        """While it has nothing under way: for what a server has taken up the kernel waits even when it ends a process,
        with or without prismdbg. What it has not taken up, a process that ends leaves."""
        end = time.monotonic() + STOP_BOUND_S
        running_s = 0.002
        while True:
            self.process.suspend()
            wait_for(lambda: self.process.status() == psutil.STATUS_STOPPED, 5, "the server to stand")
            if self._waiting() == 0:
                return
            assert time.monotonic() < end, "the server was never idle"
            self.process.resume()
            time.sleep(running_s)
            running_s = min(2 * running_s, 0.1)  # on a busy machine it needs longer to catch up


@contextmanager
def served(folder: Path, base: Path, *, cached: bool = False, reply_s: float = 0.0) -> Iterator[FileServer]:
    """`folder` is there. What is written into it lies in a folder in `base`. `cached`: as it is by default, faster.
    `reply_s`: it can be slow, and how long a reply takes then."""
    behind = base / "behind"
    behind.mkdir()
    sign = base / "is slow"
    # Without these, who waits for one reply waits for all of them, and each page that is written has one of its own.
    many = ("--multithreaded", "-o", "big_writes") if reply_s else ()
    command = ["bindfs", "-f", *many, *(() if cached else _UNCACHED), str(behind), str(folder)]
    process = psutil.Popen(command, env={**os.environ, **(_slow_replies(base, sign, reply_s) if reply_s else {})})
    try:
        wait_for(folder.is_mount, 20, "the file system to be there")
        connection = _connection(folder, base / "control")
        try:
            yield FileServer(process, connection, sign)
        finally:
            os.close(connection)
    finally:
        with suppress(psutil.NoSuchProcess):  # killed by the test
            process.resume()
        while _is_broken(folder) or folder.is_mount():
            subprocess.run(["umount", "--lazy", folder], check=True)
        with suppress(psutil.NoSuchProcess):
            process.kill()
        process.wait(20)


def _slow_replies(base: Path, sign: Path, reply_s: float) -> dict[str, str]:
    library = build(Path(__file__).with_name("slow_replies.c"), base / "slow", "libslow.so") / "libslow.so"
    return {"LD_PRELOAD": str(library), "SLOW_WHILE": str(sign), "SLOW_MS": str(round(reply_s * 1000))}


def _connection(folder: Path, control: Path) -> int:
    control.mkdir()
    subprocess.run(["mount", "-t", "fusectl", "none", control], check=True)
    try:
        return os.open(control / str(os.minor(folder.stat().st_dev)), os.O_RDONLY)
    finally:
        subprocess.run(["umount", "--lazy", control], check=True)  # nobody may walk into it


def _is_broken(folder: Path) -> bool:
    """Its server is gone."""
    try:
        folder.stat()
    except OSError:
        return True
    return False
