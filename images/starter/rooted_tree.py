"""Files and mount points beneath one folder, whatever the names on the way there are. Standard library only.

Paths come from a capsule, and the folders on their way from the rank: a link leads nowhere but beneath the same root,
and never through /proc.
"""

from __future__ import annotations

import ctypes
import errno
import os
import shutil
import stat
import struct
from pathlib import Path

from syscalls import MS_BIND, PlaceError, check, libc, remount
from user_namespace import attach, shown

OPENAT2 = 437
NO_MAGIC_LINKS, IN_ROOT = 0x02, 0x10
# Of proc, sysfs, cgroup, cgroup2, devpts, debugfs, tracefs, securityfs, bpf, mqueue, binfmt_misc, configfs.
KERNEL_VIEWS = frozenset((0x9FA0, 0x62656572, 0x27E0EB, 0x63677270, 0x1CD1, 0x64626720, 0x74726163, 0x73636673))
KERNEL_VIEWS |= {0xCAFE4A11, 0x19800202, 0x42494E4D, 0x62656570}
REFUSED = ("/proc", "/sys", "/dev")
ALLOWED_IN_REFUSED = "/dev/shm"
Owner = tuple[int, int]


class RootedTree:
    """`root` is opened once. `users`: of a user namespace, if what is bound is to be shown as that of its users."""

    def __init__(self, root: str | Path = "/", users: int | None = None) -> None:
        self.users = users
        self._root = os.open(root, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)

    def __enter__(self) -> RootedTree:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._root)

    def open(self, path: str, flags: int, mode: int = 0) -> int:
        """As `os.open`. What is opened for writing is a regular file of no kernel view."""
        how = struct.pack("=3Q", flags | os.O_CLOEXEC, mode, NO_MAGIC_LINKS | IN_ROOT)
        found = int(libc.syscall(OPENAT2, self._root, os.fsencode(path), how, len(how)))
        if found < 0:
            number = ctypes.get_errno()
            if number == errno.ENOSYS:
                raise PlaceError("this kernel lacks openat2: Linux 5.6 or newer is needed")
            raise OSError(number, os.strerror(number), path)
        return found

    def open_file(self, path: str, *, create: bool = False) -> int:
        """For writing; nothing is changed yet."""
        require_ordinary(path)
        flags = os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY | (os.O_CREAT if create else 0)
        found = self.open(path, flags, 0o600 if create else 0)
        if not stat.S_ISREG(os.fstat(found).st_mode) or is_kernel_view(found):
            os.close(found)
            raise PlaceError(f"{path} is not a regular file in the rank's sandbox")
        return found

    def folder(self, path: str, owner: Owner) -> int:
        """It and those above it are made where they lack."""
        require_ordinary(path)
        try:
            return self.open(path, os.O_PATH | os.O_DIRECTORY)
        except FileNotFoundError:
            above = self.folder(str(Path(path).parent), owner)
        try:
            name = Path(path).name
            os.mkdir(name, 0o755, dir_fd=above)
            os.chown(name, *owner, dir_fd=above, follow_symlinks=False)
        finally:
            os.close(above)
        return self.open(path, os.O_PATH | os.O_DIRECTORY)

    def make_folder(self, path: str, owner: Owner = (-1, -1)) -> None:
        os.close(self.folder(path, owner))

    def bind(self, source: str, target: str, *, read_only: bool) -> None:
        """Makes the mount point as well: a folder for a folder, an empty file for anything else.

        Without what is mounted below the source; no device file in it can be opened."""
        if Path(source).is_dir():
            point = self.folder(target, (-1, -1))
        else:
            self.make_folder(str(Path(target).parent))
            point = self._file_point(target)
        try:
            if self.users is not None:
                attach(shown(source, self.users), point)
            else:
                at = os.fsencode(f"/proc/self/fd/{point}")
                check(libc.mount(os.fsencode(source), at, None, MS_BIND, None), f"bind {source} on {target}")
        finally:
            os.close(point)
        mounted = self.open(target, os.O_PATH)
        try:
            remount(f"/proc/self/fd/{mounted}", read_only=read_only)
        finally:
            os.close(mounted)

    def link(self, path: str, target: str) -> None:
        """Nothing is done where something is there."""
        above = self.folder(str(Path(path).parent), (-1, -1))
        try:
            os.symlink(target, Path(path).name, dir_fd=above)
        except FileExistsError:
            return
        finally:
            os.close(above)

    def remove(self, path: str) -> None:
        """A file, a link, or a folder with what is in it."""
        above = self.open(str(Path(path).parent), os.O_RDONLY | os.O_DIRECTORY)
        name = Path(path).name
        try:
            if stat.S_ISDIR(os.stat(name, dir_fd=above, follow_symlinks=False).st_mode):
                shutil.rmtree(name, ignore_errors=True, dir_fd=above)
            else:
                os.unlink(name, dir_fd=above)
        finally:
            os.close(above)

    def _file_point(self, target: str) -> int:
        try:
            return self.open(target, os.O_PATH)
        except FileNotFoundError:
            os.close(self.open_file(target, create=True))
            return self.open(target, os.O_PATH)


def require_ordinary(path: str) -> None:
    """`PlaceError` for what lies in a view of the kernel's, by its name."""
    if not path.startswith("/") or os.path.normpath(path) != path:
        raise PlaceError(f"{path} is not a plain absolute path")
    if f"{path}/".startswith(f"{ALLOWED_IN_REFUSED}/"):
        return
    if path.startswith(tuple(f"{refused}/" for refused in REFUSED)):
        raise PlaceError(f"{path} belongs to the kernel: no file of a rank can be placed there")


def require_own(names: list[str]) -> None:
    """`PlaceError` where a name leads into a view of the kernel's, whatever links are on its way. Before the rank is
    there: an engine opens them with more rights than the rank will have, and what a process of ours has open is only a
    link of /proc away."""
    with RootedTree() as tree:
        for name in names:
            require_ordinary(name)
            if leads_to_kernel(tree, name):
                raise PlaceError(f"{name[:80]} leads to what belongs to the kernel: it is not opened for the rank")


def leads_to_kernel(tree: RootedTree, name: str) -> bool:
    """By the part of it that is there."""
    path = name
    while True:
        try:
            found = tree.open(path, os.O_PATH)
        except FileNotFoundError:
            if Path(path).is_symlink():  # where it leads may be there by the time that it is opened
                return True
            path = str(Path(path).parent)
            continue
        except NotADirectoryError:
            path = str(Path(path).parent)
            continue
        except OSError as error:
            if error.errno == errno.ELOOP:  # a link of /proc, or links in a circle
                return True
            raise
        try:
            return is_kernel_view(found)
        finally:
            os.close(found)


def is_kernel_view(descriptor: int) -> bool:
    buffer = ctypes.create_string_buffer(256)
    check(libc.fstatfs(descriptor, buffer), "examine a file system")
    return int(struct.unpack_from("@l", buffer.raw)[0]) & 0xFFFFFFFF in KERNEL_VIEWS
