"""The seam between prismdbg and the program that saves a running process and restores it.

`Engine` is all that the rest of prismdbg knows of such a program, and `choice` says which one is used. The starter runs
the same program in the rank's place: its half of the seam is `images/starter/engine.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path, PurePosixPath
from typing import Protocol

from prismdbg.errors import PrismError

LEAST_BOUND_S = 90.0
SLOW_BYTES_PER_S = 50 << 20  # to a disk that others write to as well, or over a network


def bound_s(image_bytes: int) -> float:
    """For how long an image of about that size may be written. Ending the engine half-way can cost the process its
    life, so that no disk that makes progress reaches it."""
    return LEAST_BOUND_S + image_bytes / SLOW_BYTES_PER_S


class Use(StrEnum):
    """What an engine is looked for."""

    READ = "read"  # its images: the program is not run, and need not work here
    RUN = "run"  # to save and restore processes: it has done so here
    BUILD = "build"  # as RUN, and it is built where there is none


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """The engine's program on this machine.

    name: by which the starter knows it. folder: all that it needs; bound at the same path in the rank's place.
    command: how the starter runs it. capabilities: those that it needs in a container, beyond a container's usual ones.
    explain: makes the error out of what was tried and the program's log of it; explain_foreign: of images that come
    from a capsule, a `CapsuleError` where the program names them as the cause.
    """

    name: str
    version: str
    folder: Path
    command: tuple[str, ...]
    capabilities: tuple[str, ...]
    explain: Callable[[str, str], PrismError]
    explain_foreign: Callable[[str, str], PrismError]


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenFile:
    """A regular file that must be there at the restore. `size_bytes` is what it must have then. Those in /proc and /sys
    do not count: every place has its own."""

    path: str
    size_bytes: int
    mode: int
    is_mapped: bool
    is_written: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Standard:
    """One of the descriptors 0, 1 and 2, and the key by which a restore replaces it: `pipe:[INODE]`, a file's path
    without its first slash, or a terminal as `tty[DEVICE:FILE SYSTEM]`, both in hexadecimal digits."""

    number: int
    key: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuPart:
    """What the processes `pids` have on GPUs, which is among their memory in the image. NVIDIA's driver of that version
    moves it back, to the GPUs with these UUIDs."""

    pids: tuple[int, ...]
    driver: str
    gpus: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessImage:
    """The tree of one rank. Paths are as the rank saw them."""

    root_pid: int
    pids: tuple[int, ...]
    leads_session: bool
    cwd: str
    uid: int
    gid: int
    files: tuple[OpenFile, ...]
    addresses: tuple[str, ...]
    unix_sockets: tuple[str, ...]
    standards: tuple[Standard, ...]
    gpu: GpuPart | None = None

    @property
    def folders(self) -> tuple[str, ...]:
        """Folders that must exist before the restore: where it works, and where its sockets and files lie."""
        paths = [file.path for file in self.files if not file.is_mapped] + list(self.unix_sockets)
        return tuple(sorted({self.cwd, *(str(PurePosixPath(path).parent) for path in paths)}))


@dataclass(frozen=True, slots=True, kw_only=True)
class Unrestorable:
    """A descriptor of a process in the image that a restore cannot open again."""

    pid: int
    number: int
    path: str

    def __str__(self) -> str:
        return f"descriptor {self.number} ({self.path})"


@dataclass(frozen=True, slots=True, kw_only=True)
class DumpReport:
    """What a dump cost: `frozen_ns` is how long the process stood still. `unrestorable`: what makes it useless."""

    images: Path
    images_bytes: int
    frozen_ns: int
    pages_bytes: int
    unrestorable: tuple[Unrestorable, ...] = ()


class Engine(Protocol):
    """A checkpoint engine that was found on this machine. Images are foreign input, unless `dump` has just made them:
    what is wrong with them is a `CapsuleError`."""

    @property
    def program(self) -> Program: ...

    def dump(self, pid: int, images: Path, *, timeout_s: float) -> Callable[[], DumpReport]:
        """Saves `pid` and its children, which go on, into the new folder `images`, and returns at once: somebody waits
        for the process. What is returned reads what it cost. What they have on NVIDIA GPUs is saved, too.
        `CheckpointError` where the engine refuses; `CheckpointTooSlow` where it was ended after `timeout_s`."""

    def read(self, images: Path) -> ProcessImage:
        """Everything that a restore must find or be given."""

    def require_restorable(self, images: Path) -> None:
        """Reads all that a restore reads, and refuses what `prepare_restore` refuses. Nothing is run or written."""

    def prepare_restore(self, images: Path, into: Path, *, seen_as: PurePosixPath, seccomp: bytes) -> tuple[str, ...]:
        """Makes the new folder `into` to restore from, and leaves `images` as they are.

        A restored process has no capabilities, no way to gain any, and the filter `seccomp`. Links lead to `seen_as`,
        where the restoring place sees `images`. Images that ask for more than to bring processes back are refused.
        The answer: the paths of files, folders and sockets that a restore opens or makes by name.
        """


Find = Callable[[Use], Engine]
"""Finds an engine; `FacilityError` says why this machine has none for this use."""
