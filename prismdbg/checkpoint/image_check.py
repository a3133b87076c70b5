"""Whether CRIU's images ask for nothing but processes, their memory and their files.

criu carries out what images say with more privileges than the rank will have: it would make namespaces and mounts,
write control groups, make device files, and open what the rank itself may not. A capsule's images are foreign input.
"""

from __future__ import annotations

import os
import quopri
import re
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import NoReturn

from prismdbg.capsule.rank_path import is_in_kernel, is_plain
from prismdbg.checkpoint.bindings import Entry, first_entry, load_image, pages_in
from prismdbg.checkpoint.bundle import Criu
from prismdbg.errors import CapsuleError

# Names of images without their suffix.
_KNOWN = re.compile(
    r"(core|fdinfo|fs|ids|itimers|mm|pagemap|pagemap-shmem|pages|posix-timers|rlimit|sigacts|tcp-stream|ghost-file"
    r"|signal-[ps]|signal)-[0-9a-f]+"
    r"|files|inventory|pstree|seccomp|timens-0|tty-info|tty-data|pipes-data|fifo-data|remap-fpath|filelocks|sk-queues"
    r"|memfd|eventpoll-tfd|stats-dump|stats-restore"
)
_KINDS = frozenset(
    ("REG", "PIPE", "FIFO", "INETSK", "UNIXSK", "EVENTFD", "EVENTPOLL", "INOTIFY", "SIGNALFD", "NETLINKSK", "TTY")
)
_KINDS |= {"TIMERFD", "MEMFD", "PIDFD"}
_NAMESPACES = ("pid_ns_id", "net_ns_id", "ipc_ns_id", "uts_ns_id", "mnt_ns_id", "user_ns_id", "cgroup_ns_id")
# What a program may have had open of the kernel's views, and only for reading.
_KERNEL_TEXTS = re.compile(
    r"/proc/((self|(?P<pid>[0-9]+))/(stat|statm|status|maps|smaps|smaps_rollup|schedstat|io|limits|cgroup|mountinfo"
    r"|mounts|net/dev)"
    r"|stat|meminfo|cpuinfo|loadavg|uptime|version|vmstat|filesystems|locks|diskstats|pressure/(cpu|io|memory)|net/dev)"
    r"|/sys/(devices/(system|virtual)|fs/cgroup|class|bus)/.*"
)
_DEVICES = re.compile(r"/dev/(null|zero|full|random|urandom|tty|ptmx|pts/[0-9]+|pts/ptmx|shm/.*|shm|nvidia[^/]*)")
_DEVICE_MODES = (0o020000, 0o060000)  # S_IFCHR, S_IFBLK
_LINK_MODE, _MODE_MASK = 0o120000, 0o170000
_LOCKS = (1, 2, 4)  # criu/include/file-lock.h: FL_POSIX, FL_FLOCK, FL_OFD; the other one is FL_LEASE
_PAGE_BYTES = 4096
_HINT = "fetch the capsule again: this copy was altered"


def check_images(criu: Criu, images: Path, *, contents: Path) -> None:
    """`CapsuleError` naming what is asked for. `contents`: the folder with what may be large: memory, deleted files."""
    for path in sorted({*images.iterdir(), *contents.iterdir()}):
        if path.suffix == ".img" and not _KNOWN.fullmatch(path.stem):
            _refuse(f"contains {path.name}, which is not part of a process")
    _check_namespaces(criu, images)
    pids = pids_of(load_image(criu, images / "pstree.img"))
    for entry in load_image(criu, images / "files.img"):
        if what := refusal(entry, pids):
            _refuse(what)
    if (locks := images / "filelocks.img").exists() and any(is_lease(lock) for lock in load_image(criu, locks)):
        _refuse("contains a lease of a file, which delays every other program that writes it")
    for path in contents.glob("ghost-file-*.img"):
        _check_ghost(path.name, first_entry(criu, path))
    _check_parts(images)
    for path in images.glob("mm-*.img"):
        _check_mappings(path.name, first_entry(criu, path))
    for path in images.glob("pagemap-*.img"):
        _check_memory(path.name, *pages_in(criu, path), contents)


def _check_namespaces(criu: Criu, images: Path) -> None:
    """Every process must be in those that criu itself was in: then none is made."""
    own = first_entry(criu, images / "inventory.img").get("root_ids", {})
    for path in images.glob("ids-*.img"):
        found = first_entry(criu, path)
        for name in _NAMESPACES:
            if found.get(name) != own.get(name):
                _refuse(f"asks for another namespace ({name.removesuffix('_id')})")


def pids_of(tree: list[Entry]) -> frozenset[int]:
    """Of all processes and threads in the image."""
    return frozenset(int(number) for entry in tree for number in (entry["pid"], *entry.get("threads", ())))


def refusal(file: Entry, pids: Collection[int]) -> str:
    """Why this open file is not restored, as the end of a sentence about the checkpoint; empty where it is.

    `pids`: those in the image. CRIU would open what the kernel tells of another process, which the rank may not.
    """
    if file["type"] not in _KINDS:
        return f"contains an open file of type {file['type']!r}"
    for name, is_written in _names(file):
        if not is_plain(name):  # /./proc/1/fd is /proc/1/fd to criu
            return f"names the file {name[:80]!r}"
        if name.startswith("/dev/") and not _DEVICES.fullmatch(name):
            return f"has {name[:80]} open"
        if name.startswith(("/proc/", "/sys/")) and (is_written or not _is_kernel_text(name, pids)):
            return f"has {name[:80]} open"
    return ""


def _is_kernel_text(name: str, pids: Collection[int]) -> bool:
    found = _KERNEL_TEXTS.fullmatch(name)
    return found is not None and (not (pid := found["pid"]) or int(pid) in pids)


def is_lease(lock: Entry) -> bool:
    return int(lock["flag"]) not in _LOCKS


def opened_names(files: Iterable[Entry]) -> frozenset[str]:
    """What criu opens or makes by name, but for what it may open of the kernel's."""
    return frozenset(name for entry in files for name, _ in _names(entry) if not is_in_kernel(name))


def _names(entry: Entry) -> Iterator[tuple[str, bool]]:
    if (regular := entry.get("reg")) is not None:
        yield str(regular["name"]), bool(int(regular["flags"]) & os.O_ACCMODE)
    if (bound := entry.get("usk")) is not None:  # criu removes what has the name, and works in the folder
        folder, name = str(bound.get("name_dir", "")), socket_name(bound)
        if folder:
            yield folder, True
        if name:
            yield name if name.startswith("/") else f"{folder}/{name}", True


def socket_name(bound: Entry) -> str:
    """Of a Unix socket; empty without one in the file system. Abstract names (a leading zero byte) live in the network
    namespace and need nothing."""
    name = quopri.decodestring(os.fsencode(bound.get("name", "")))
    return "" if name[:1] == b"\0" else os.fsdecode(name.rstrip(b"\0"))


def _check_ghost(name: str, ghost: Entry) -> None:
    kind = int(ghost.get("mode", 0)) & _MODE_MASK
    if kind in _DEVICE_MODES or kind == _LINK_MODE:
        _refuse(f"would create a device file or a link ({name})")


def _check_parts(images: Path) -> None:
    """criu crashes where the memory of a process is missing. A dead child, which has none, has no ids either."""
    for path in images.glob("ids-*.img"):
        for name in (path.name.replace("ids", part, 1) for part in ("core", "mm", "pagemap", "fs")):
            if not (images / name).is_file():
                _refuse(f"lacks {name}")


def _check_mappings(name: str, memory: Entry) -> None:
    """Of a process they stand one after the other; criu crashes over others."""
    ends = [(int(area["start"]), int(area["end"])) for area in memory.get("vmas", ())]
    bounds = [0, *(bound for pair in ends for bound in pair)]
    if bounds != sorted(bounds):
        _refuse(f"has mappings that overlap ({name})")


def _check_memory(name: str, number: int, pages: int, contents: Path) -> None:
    """criu waits for what its pages lack until its time is up."""
    held = contents / f"pages-{number}.img"
    if pages and (not held.is_file() or held.stat().st_size < pages * _PAGE_BYTES):
        _refuse(f"lacks memory: {held.name} does not hold the {pages:,} pages of {name}")


def _refuse(what: str) -> NoReturn:
    raise CapsuleError(f"the checkpoint {what}", hint=_HINT)
