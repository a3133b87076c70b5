"""System calls that the standard library does not know, and what went wrong in words. Standard library only."""

from __future__ import annotations

import ctypes
import errno
import os
import struct
from pathlib import Path

CLONE_NEWNS, CLONE_NEWCGROUP, CLONE_NEWUTS, CLONE_NEWIPC = 0x00020000, 0x02000000, 0x04000000, 0x08000000
CLONE_NEWUSER, CLONE_NEWPID, CLONE_NEWNET = 0x10000000, 0x20000000, 0x40000000
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_REMOUNT, MS_BIND, MS_REC, MS_PRIVATE = (
    1,
    2,
    4,
    8,
    32,
    4096,
    16384,
    1 << 18,
)
MNT_DETACH = 2
MOUNT_SETATTR, AT_RECURSIVE, MOUNT_ATTR_NOSYMFOLLOW = 442, 0x8000, 0x200000
MOUNT_ATTR_IDMAP, AT_EMPTY_PATH, MOVE_MOUNT, MOVE_TO_AND_FROM_DESCRIPTORS = 0x100000, 0x1000, 429, 0x44
OPEN_TREE, AT_FDCWD, OPEN_TREE_CLONE = 428, -100, 1
PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_SECCOMP, PR_CAPBSET_DROP = 1, 4, 22, 24
PR_SET_CHILD_SUBREAPER, PR_SET_NO_NEW_PRIVS, PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL = 36, 38, 47, 4
SECCOMP_MODE_FILTER = 2
CAPABILITY_VERSION_3 = 0x20080522

libc = ctypes.CDLL(None, use_errno=True)


class PlaceError(Exception):
    """Something the place needs could not be made; the text is what the user sees."""


def check(result: int, what: str) -> None:
    if result != 0:
        raise PlaceError(f"cannot {what}: {os.strerror(ctypes.get_errno())}")


def prctl(option: int, value: int) -> None:
    check(libc.prctl(option, value, 0, 0, 0), f"set process option {option}")


def open_detached(path: str) -> int:
    """A folder as the root of a mount of its own: from this descriptor no way leads to what lies around it. Needs
    a mount namespace of our own."""
    found = int(libc.syscall(OPEN_TREE, AT_FDCWD, os.fsencode(path), OPEN_TREE_CLONE | os.O_CLOEXEC))
    if found < 0:
        raise PlaceError(f"cannot open {path} as a separate mount: {os.strerror(ctypes.get_errno())}")
    return found


def open_read_only(path: str) -> int:
    """As `open_detached`. Nobody writes through it, whatever rights he has; before Linux 5.12 whoever has them may."""
    found = open_detached(path)
    attributes = mount_attributes(set_=MS_RDONLY)  # MOUNT_ATTR_RDONLY has the same number
    done = libc.syscall(MOUNT_SETATTR, found, b"", AT_EMPTY_PATH, attributes, len(attributes))
    if done != 0 and (number := ctypes.get_errno()) != errno.ENOSYS:
        raise PlaceError(f"cannot make {path} read-only for the replay: {os.strerror(number)}")
    return found


def mount_attributes(*, set_: int = 0, clear: int = 0, namespace: int = 0) -> bytes:
    """As mount_setattr takes them."""
    return struct.pack("=4Q", set_, clear, 0, namespace)


def follow_links(path: str, *, follow: bool) -> None:
    """Whether symbolic links are followed on the mount at `path` and on all below it, by whatever process."""
    flag = MOUNT_ATTR_NOSYMFOLLOW
    attributes = mount_attributes(clear=flag) if follow else mount_attributes(set_=flag)
    name, size = os.fsencode(path), len(attributes)
    done = libc.syscall(MOUNT_SETATTR, AT_FDCWD, name, AT_RECURSIVE, attributes, size)
    check(done, f"set whether links below {path} are followed (Linux 5.14 or newer is needed)")


def mount_result(source: str, target: str, kind: str, flags: int = 0, data: str = "") -> int:
    return int(libc.mount(source.encode(), os.fsencode(target), kind.encode(), flags, data.encode() or None))


def mount(source: str, target: str, kind: str, flags: int = 0, data: str = "") -> None:
    check(mount_result(source, target, kind, flags, data), f"mount {kind} on {target}")


def bind_mount(source: str, target: str, *, read_only: bool = False) -> None:
    """Makes the mount point as well: a folder for a folder, an empty file for anything else."""
    if Path(source).is_dir():
        Path(target).mkdir(parents=True, exist_ok=True)
    elif not os.path.lexists(target):
        Path(target).parent.mkdir(parents=True, exist_ok=True)
        Path(target).touch()
    bind = MS_BIND | MS_REC
    check(libc.mount(os.fsencode(source), os.fsencode(target), None, bind, None), f"bind {source} on {target}")
    if read_only:
        remount(target, read_only=True)


def bind_device(source: str, target: str) -> None:
    """A character device. It is opened for writing all the same, but its mode, owner and times, which all programs of
    this machine see, do not change through this mount."""
    bind_mount(source, target)
    flags = MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOSUID
    if libc.mount(None, os.fsencode(target), None, flags, None) != 0:  # somebody else may have set another flag
        check(libc.mount(None, os.fsencode(target), None, flags | MS_NOEXEC, None), f"make {target} read-only")


def remount(target: str, *, read_only: bool) -> None:
    """Without device files and privileged programs. Flags that it has must be named again, where somebody else has
    set them."""
    flags = MS_REMOUNT | MS_BIND | (MS_RDONLY if read_only else 0)
    for more in (MS_NOSUID | MS_NODEV, MS_NOSUID | MS_NODEV | MS_NOEXEC):
        if libc.mount(None, os.fsencode(target), None, flags | more, None) == 0:
            return
    raise PlaceError(f"cannot mount {target} again: {os.strerror(ctypes.get_errno())}")
