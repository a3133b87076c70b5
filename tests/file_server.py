"""A folder on a file system with a server, as NFS and sshfs have one: bindfs, a process that can be stopped."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
from waiting import wait_for

STOP_BOUND_S = 20.0
_UNCACHED = ("-o", "attr_timeout=0,entry_timeout=0,negative_timeout=0")  # the kernel does not answer in its place


def missing() -> str:
    """Empty, or why there can be none here."""
    if shutil.which("bindfs") is None or not Path("/dev/fuse").exists():
        return "bindfs or /dev/fuse is missing (apt-get install bindfs)"
    return "mounting needs root" if os.geteuid() != 0 else ""


class FileServer:
    def __init__(self, process: psutil.Popen, connection: int) -> None:
        """`connection`: a descriptor of the folder in which the kernel says how many requests have no answer."""
        self.process = process
        self._connection = connection

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
        while True:
            self.process.suspend()
            wait_for(lambda: self.process.status() == psutil.STATUS_STOPPED, 5, "the server to stand")
            if self._waiting() == 0:
                return
            assert time.monotonic() < end, "the server was never idle"
            self.process.resume()
            time.sleep(0.002)


@contextmanager
def served(folder: Path, base: Path, *, cached: bool = False) -> Iterator[FileServer]:
    """`folder` is there. What is written into it lies in a folder in `base`. `cached`: as it is by default, faster."""
    behind = base / "behind"
    behind.mkdir()
    process = psutil.Popen(["bindfs", "-f", *(() if cached else _UNCACHED), str(behind), str(folder)])
    try:
        wait_for(folder.is_mount, 20, "the file system to be there")
        connection = _connection(folder, base / "control")
        try:
            yield FileServer(process, connection)
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
