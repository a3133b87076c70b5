"""A user namespace for a rank of root: it stays root of its files, and is a user of this machine who owns nothing.

The place is made outside of it, so the rank has no rights over mounts, network or processes. What it sees of this
machine is seen through mounts that show root's files as its own; what it writes there is root's on the disk. Standard
library only.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from syscalls import (
    AT_EMPTY_PATH,
    AT_FDCWD,
    CLONE_NEWUSER,
    MOUNT_ATTR_IDMAP,
    MOUNT_SETATTR,
    MOVE_MOUNT,
    MOVE_TO_AND_FROM_DESCRIPTORS,
    OPEN_TREE,
    OPEN_TREE_CLONE,
    PlaceError,
    check,
    libc,
    mount_attributes,
)

FIRST, COUNT = 0x60000000, 1 << 28  # users of this machine that nobody is: far above those given to people and services
Spec = dict[str, Any]


def wants_namespace(spec: Spec) -> bool:
    """An engine restores no filter in one, and gives back no files that are seen through such mounts."""
    is_plain_start = spec["restore"] is None and spec["saving"] is None
    return spec["isolation"] == "namespaces" and os.geteuid() == 0 and is_plain_start


def tell(why: object) -> None:
    print(f"the rank is root of this machine, without capabilities: {why}", file=sys.stderr, flush=True)


def make_namespace() -> int:
    """Opened. While /proc shows the processes that are forked here."""
    said, saying = os.pipe()
    child = os.fork()
    if child == 0:
        made = libc.unshare(CLONE_NEWUSER)
        os.write(saying, bytes([ctypes.get_errno() if made else 0]))
        signal.pause()
    try:
        os.close(saying)
        if reason := os.read(said, 1)[0]:
            raise PlaceError(f"this machine cannot create a user namespace: {os.strerror(reason)}")
        for name in ("uid_map", "gid_map"):
            Path(f"/proc/{child}/{name}").write_text(f"0 {FIRST} {COUNT}")
        return os.open(f"/proc/{child}/ns/user", os.O_RDONLY | os.O_CLOEXEC)
    finally:
        os.close(said)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def enter(namespace: int, uid: int, gid: int) -> None:
    """The calling process, as this user of it."""
    check(libc.setns(namespace, CLONE_NEWUSER), "enter the user namespace")
    os.setgroups([])
    os.setresgid(*(gid,) * 3)
    os.setresuid(*(uid,) * 3)


def shown(path: str, namespace: int) -> int:
    """A mount of `path`, nowhere yet, on which the users of this machine are those of the namespace."""
    found = int(libc.syscall(OPEN_TREE, AT_FDCWD, os.fsencode(path), OPEN_TREE_CLONE | os.O_CLOEXEC))
    if found < 0:
        raise PlaceError(f"cannot open {path}: {os.strerror(ctypes.get_errno())}")
    attributes = mount_attributes(set_=MOUNT_ATTR_IDMAP, namespace=namespace)
    if libc.syscall(MOUNT_SETATTR, found, b"", AT_EMPTY_PATH, attributes, len(attributes)) != 0:
        os.close(found)
        raise PlaceError(f"the file system of {path} has no id-mapped mounts: {os.strerror(ctypes.get_errno())}")
    return found


def attach(mounted: int, point: int) -> None:
    """At the folder or file that is open; closes what is attached."""
    try:
        done = libc.syscall(MOVE_MOUNT, mounted, b"", point, b"", MOVE_TO_AND_FROM_DESCRIPTORS)
        check(done, "mount a folder with mapped owners")
    finally:
        os.close(mounted)


def problem(paths: Iterable[str], namespace: int) -> str:
    """Why these cannot be shown so; empty where they can."""
    try:
        for path in paths:
            if os.path.lexists(path):
                os.close(shown(path, namespace))
    except PlaceError as error:
        return str(error)
    return ""


def owner(spec: Spec, uid: int, gid: int) -> tuple[int, int]:
    """These users of the rank's, as the machine knows them."""
    return (uid, gid) if spec["users"] is None else (FIRST + uid, FIRST + gid)


def hand_over(folder: Path) -> None:
    """To the rank's users, what was made on this file system for those of this machine; not what is mounted below."""
    device = folder.lstat().st_dev
    for parent, folders, names in os.walk(folder):
        for path in (Path(parent), *(Path(parent, name) for name in names)):
            status = path.lstat()
            if status.st_dev == device and status.st_uid < COUNT:
                os.chown(path, FIRST + status.st_uid, FIRST + status.st_gid, follow_symlinks=False)
        folders[:] = [name for name in folders if Path(parent, name).lstat().st_dev == device]
