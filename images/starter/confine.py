"""What a rank is kept from: kernel settings, devices, privileges, system calls. Standard library only.

The first process of the place and a checkpoint engine need more than the rank, and run in the same view of the file
systems. What they alone need is opened before the view is confined, and kept as descriptors.
"""

from __future__ import annotations

import ctypes
import os
import struct
from pathlib import Path
from typing import Any

from mounts import mounts
from syscalls import (
    CAPABILITY_VERSION_3,
    MS_BIND,
    MS_NODEV,
    MS_NOEXEC,
    MS_NOSUID,
    MS_RDONLY,
    MS_REC,
    PR_CAP_AMBIENT,
    PR_CAP_AMBIENT_CLEAR_ALL,
    PR_CAPBSET_DROP,
    PR_SET_DUMPABLE,
    PR_SET_NO_NEW_PRIVS,
    PR_SET_SECCOMP,
    SECCOMP_MODE_FILTER,
    PlaceError,
    bind_device,
    check,
    libc,
    mount,
    prctl,
    remount,
)
from user_namespace import enter

# As runc hides them in every container, and what else of the kernel's memory and messages shows in /proc.
MASKED = (
    "/proc/acpi",
    "/proc/asound",
    "/proc/interrupts",
    "/proc/kcore",
    "/proc/key-users",
    "/proc/keys",
    "/proc/kmsg",
    "/proc/kpagecgroup",
    "/proc/kpagecount",
    "/proc/kpageflags",
    "/proc/latency_stats",
    "/proc/sched_debug",
    "/proc/scsi",
    "/proc/timer_list",
    "/proc/timer_stats",
    "/proc/vmcore",
    "/sys/devices/virtual/powercap",
    "/sys/firmware",
    "/sys/kernel/debug",
    "/sys/kernel/security",
    "/sys/kernel/tracing",
    "/sys/fs/bpf",
    "/sys/fs/pstore",
)
MASKED_PATTERNS = ("sys/devices/system/cpu/cpu*/thermal_throttle",)
READ_ONLY = ("/proc/bus", "/proc/fs", "/proc/irq", "/proc/mtrr", "/proc/sys", "/proc/sysrq-trigger", "/sys")

# What an engine needs, and what the place is made with, by number. All else the first process gives up at once.
KEPT_CAPABILITIES = {
    "CHOWN": 0,
    "DAC_OVERRIDE": 1,
    "DAC_READ_SEARCH": 2,
    "FOWNER": 3,
    "FSETID": 4,
    "KILL": 5,
    "SETGID": 6,
    "SETUID": 7,
    "SETPCAP": 8,
    "NET_BIND_SERVICE": 10,
    "NET_ADMIN": 12,
    "SYS_CHROOT": 18,
    "SYS_PTRACE": 19,
    "SYS_ADMIN": 21,
    "SYS_RESOURCE": 24,
    "SYS_TIME": 25,
    "CHECKPOINT_RESTORE": 40,
}
FILE_CAPABILITIES = ("CHOWN", "DAC_OVERRIDE", "DAC_READ_SEARCH", "FOWNER", "FSETID")  # to lay the rank's files with

Spec = dict[str, Any]
PRELOAD = "/etc/ld.so.preload"  # libraries that any loader loads, the engine's too


class LastPid:
    """The kernel's last PID of this namespace, by which the engine's own processes are kept clear of the rank's.
    Opened while /proc/sys can still be written to."""

    def __init__(self) -> None:
        self._fd = os.open("/proc/sys/kernel/ns_last_pid", os.O_WRONLY | os.O_CLOEXEC)
        self.most = int(Path("/proc/sys/kernel/pid_max").read_text())

    def set(self, pid: int) -> None:
        os.pwrite(self._fd, str(pid).encode(), 0)


def confine_view(read_by_engine: tuple[str, ...]) -> None:
    """The kernel's settings and memory are out of reach of everything in this mount namespace, whatever user it is.
    `read_by_engine`: files by which the checkpoint engine goes; the rank cannot write them."""
    for path in (*MASKED, *(str(found) for pattern in MASKED_PATTERNS for found in Path("/").glob(pattern))):
        mask(path)
    for path in READ_ONLY:
        if Path(path).exists():
            make_read_only(path)
    for path in shared_entries():
        make_read_only(path)
    guard((PRELOAD, *read_by_engine))


def shared_entries() -> list[str]:
    """Of /proc, what is not a process's: the kernel keeps one mode and one owner of each, for all that is mounted of
    /proc anywhere, and whoever is root may change them. Links lead elsewhere, and have none of their own."""
    found = (path for path in Path("/proc").iterdir() if not path.name.isdigit() and not path.is_symlink())
    return sorted(str(path) for path in found if str(path) not in (*MASKED, *READ_ONLY))


def mask(path: str) -> None:
    """A folder is empty, a file is /dev/null."""
    if Path(path).is_dir():
        mount("tmpfs", path, "tmpfs", MS_RDONLY | MS_NOSUID | MS_NODEV | MS_NOEXEC, "size=0")
    elif os.path.lexists(path):
        bind_device("/dev/null", path)


def make_read_only(path: str) -> None:
    """With all that is mounted below it."""
    check(libc.mount(os.fsencode(path), os.fsencode(path), None, MS_BIND | MS_REC, None), f"bind {path}")
    below = [point for point in points() if f"{point}/".startswith(f"{path}/")]
    for point in below:
        remount(point, read_only=True)


def points() -> list[str]:
    return list(dict.fromkeys(mount.point for mount in mounts()))


def guard(paths: tuple[str, ...]) -> None:
    """The engine is started in the rank's view: nothing that the rank writes there may have a say in it."""
    for path in paths:
        _cover(path)


def _cover(path: str) -> None:
    """Nothing can be read there, written, or put in its place. Its folder is a mount point, too, or the rank could give
    it another name."""
    folder = Path(path).parent
    folder.mkdir(exist_ok=True)
    if folder.is_symlink():
        raise PlaceError(f"{folder} is a link: what the checkpoint engine reads there cannot be hidden from the rank")
    check(libc.mount(bytes(folder), bytes(folder), None, MS_BIND | MS_REC, None), f"bind {folder}")
    if path in points():
        return  # whoever made the container thought of it
    if os.path.lexists(path):
        raise PlaceError(
            f"{path} exists: the checkpoint engine would read it; neither the capsule nor this machine may have it"
        )
    Path(path).touch()
    bind_device("/dev/null", path)


def keep_only_needed() -> None:
    """Of the first process: what is dropped from the bounding set no program that it starts gets."""
    if os.geteuid() != 0:
        return
    hold_capabilities(KEPT_CAPABILITIES.values())


def hold_capabilities(kept: Any) -> None:
    """Effective, permitted and bounding set, as far as they were held."""
    wanted = set(kept)
    held = effective() & sum(1 << number for number in wanted)
    drop_bounding(wanted)
    libc.prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0)
    set_capabilities(held)


def effective() -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("CapEff:")).split()[1], 16)


def drop_bounding(but: set[int]) -> None:
    last = int(Path("/proc/sys/kernel/cap_last_cap").read_text())
    for capability in range(last + 1):
        if capability not in but:
            libc.prctl(PR_CAPBSET_DROP, capability, 0, 0, 0)  # refused where there is nothing to drop


def set_capabilities(held: int) -> None:
    header = struct.pack("=Ii", CAPABILITY_VERSION_3, 0)
    low, high = held & 0xFFFFFFFF, held >> 32
    check(libc.capset(header, struct.pack("=6I", low, low, 0, high, high, 0)), "drop capabilities")


def be_nobody_special(spec: Spec) -> None:
    """The calling process, for good: the rank's user, no capability, no way to gain one, the filter on."""
    if spec["users"] is not None:
        enter(spec["users"], spec["uid"], spec["gid"])
    drop_bounding(set())
    libc.prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0)
    if os.geteuid() == 0 and spec["uid"] != 0:
        os.setgroups([])
        os.setresgid(*(spec["gid"],) * 3)
        os.setresuid(*(spec["uid"],) * 3)
    set_capabilities(0)
    lay_filter(bytes.fromhex(spec["seccomp"]))


def lay_filter(code: bytes) -> None:
    """Cannot be taken off again, and goes over to every process that is started."""
    prctl(PR_SET_NO_NEW_PRIVS, 1)
    buffer = ctypes.create_string_buffer(code, len(code))
    head = struct.pack("@HP", len(code) // 8, ctypes.addressof(buffer))
    check(libc.prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, head, 0, 0), "install the seccomp filter")


def be_opaque() -> None:
    """Nobody of the same user can look into this process or trace it."""
    prctl(PR_SET_DUMPABLE, 0)
