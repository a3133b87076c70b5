"""Things of this machine that lie outside every input: what a capsule may name, and what no replay of one may show.

The bait's content carries a word that must turn up in nothing that a rank is given. The rest an honest capsule could
name (an installation, a large file), or nobody could show (a pipe, a loop of links).
"""

from __future__ import annotations

import hashlib
import os
import socket
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from prismdbg.runtime.environment import InstalledFile

BAIT = b"bait-f3b1c0de"
LARGE_BYTES = (16 << 20) + 1  # is shown where it lies, not copied
_ELF = b"\x7fELF\x02\x01\x01" + bytes(9)
_LIBRARY, _CORE = _ELF + b"\x03\x00" + bytes(46), _ELF + b"\x04\x00" + bytes(46)
# Of the system: not there on every machine, and nothing that a test may touch; named all the same.
_OF_THE_SYSTEM = (
    "/etc/shadow", "/etc/ld.so.preload", "/proc/self/mem", "/proc/self/environ", "/proc/1/root/etc/shadow",
    "/proc/self/root", "/proc/self/cwd", "/proc/self/fd/0", "/proc/kcore", "/proc/sysrq-trigger", "/proc/kallsyms",
    "/sys/kernel", "/sys/fs/cgroup/cgroup.procs", "/dev/zero", "/dev/tty", "/dev/stdin", "/dev/shm", "/dev/shm/x",
    "/dev/mem", "/run", "/var/run/docker.sock", "/root/.ssh/id_rsa", "/bin", "/usr/bin/env", "/usr", "/etc",
    "/usr/bin/python3", "/bin/sh", "/etc/passwd", "/lib/../etc/shadow", "/tmp", "/home",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Traps:
    """`bait`: the folder of what must not be shown. paths: what may be named, by kind. unknown: files of the bait whose
    content nobody knows who makes a capsule. installed: honest entries of a list of installed files. large: a file of
    the job's that a capsule may show by its size and sha256."""

    bait: Path
    paths: tuple[tuple[str, ...], ...]
    installed: tuple[InstalledFile, ...]
    python: str
    large: Path

    @property
    def unknown(self) -> tuple[str, ...]:
        return tuple(os.path.realpath(self.bait / name) for name in ("notes.txt", "core"))

    def any_path(self, rng: Random) -> str:
        return rng.choice(rng.choice(self.paths))


def make_traps(folder: Path) -> Traps:
    bait, job, venv = folder / "bait", folder / "job", folder / "venv"
    _make_bait(bait)
    job.mkdir(parents=True)
    (job / "large.bin").touch()
    os.truncate(job / "large.bin", LARGE_BYTES)
    for name, lead in (("to-bait", bait / "notes.txt"), ("to-key", bait / ".ssh/id_rsa"), ("to-folder", bait)):
        (job / name).symlink_to(lead)
    (job / "dangling").symlink_to("nowhere")
    (job / "loop").symlink_to("loop")
    (job / "library.so").write_bytes(_LIBRARY)
    os.mkfifo(job / "fifo")
    (job / "a\nb\x1b[31m").write_bytes(b"a name of two lines")
    there = [tuple(map(str, (place, *sorted(place.rglob("*"))))) for place in (bait, job, venv)]
    through_links = (f"{job}/to-folder/notes.txt", f"{job}/to-folder/.ssh/id_rsa", f"{job}/to-key", f"{job}/to-bait")
    odd = (f"{bait}/../bait/notes.txt", f"{job}//large.bin", f"{job}/library.so/x")
    return Traps(
        bait=bait,
        paths=((*there[0], *through_links), (*there[1], *there[2], *odd), _OF_THE_SYSTEM),
        installed=_make_installation(venv, job / "library.so"),
        python=str(venv / "bin/python"),
        large=job / "large.bin",
    )  # fmt: skip


def entry_of(path: str, traps: Traps) -> dict[str, Any]:
    """As files.json has a file that is only named, by what really lies there. Whoever made it may know that of files of
    the job, which may be shown then, and of credentials, which may not be."""
    try:
        data = Path(path).read_bytes() if Path(path).is_file() and Path(path).stat().st_size <= LARGE_BYTES else b""
        if os.path.realpath(path) in traps.unknown:
            data = bytes(len(data))
    except (OSError, ValueError):  # nothing that could be read, or no path
        data = b""
    return {"path": path, "size_bytes": len(data), "sha256": hashlib.sha256(data).hexdigest(), "mode": 0o600}


def _make_bait(bait: Path) -> None:
    (bait / ".ssh").mkdir(parents=True)
    (bait / ".ssh/id_rsa").write_bytes(b"-----BEGIN OPENSSH PRIVATE KEY-----\n" + BAIT)
    (bait / "notes.txt").write_bytes(BAIT * 10)
    (bait / "core").write_bytes(_CORE + BAIT)
    (bait / "pyvenv.cfg").mkdir()  # makes no installation of it
    large = bait / "credentials.json"
    large.write_bytes(BAIT)
    os.truncate(large, LARGE_BYTES)
    os.mkfifo(bait / "fifo")
    folder = os.open(bait, os.O_PATH)  # the address of a socket may have 107 bytes, the folder's path more
    try:
        with socket.socket(socket.AF_UNIX) as listening:
            listening.bind(f"/proc/self/fd/{folder}/socket")
    finally:
        os.close(folder)


def _make_installation(venv: Path, library: Path) -> tuple[InstalledFile, ...]:
    """A small one, as a virtual environment; a library from elsewhere; and some of the system's files."""
    modules = venv / "lib/python3.11/site-packages"
    modules.mkdir(parents=True)
    (venv / "bin").mkdir()
    (venv / "pyvenv.cfg").write_text("home = /usr/bin\n")
    (venv / "bin/python").symlink_to("python3.11")
    (venv / "bin/python3.11").write_bytes(_LIBRARY)
    (modules / "torch.py").write_text("version = 1\n")
    (modules / "__pycache__").mkdir()
    (modules / "__pycache__/torch.cpython-311.pyc").write_bytes(b"compiled")
    (modules / "libm.so").symlink_to(library)
    names = [path for path in (*venv.rglob("*"), library) if "__pycache__" not in path.parts]
    found = (InstalledFile.at(str(path)) for path in (*names, Path("/usr/bin/env"), Path("/etc/group")))
    return tuple(sorted(filter(None, found), key=lambda file: file.path))
