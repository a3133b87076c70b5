"""The files of a rank that stands still, kept with its image and put back with it. Standard library only.

Kept are those that are open for writing and those that were changed in this place in the folders it writes into. What
came into such a folder later goes when they are put back; what was there before the place was made, and was written
over later, can only be cut to its length. So can a long file, of which some parts tell whether it has only grown.

Size and time of a file do not tell whether it was changed: stores through a shared mapping leave the time as it was, in
memory always and on a disk from the second on. The engine keeps no pages of such mappings, so contents are compared.

All this is done with the starter's rights at names that the rank can replace, so no link is followed (`exact_paths`).
"""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from exact_paths import (
    copy_out,
    exact_kind,
    holds,
    is_behind_link,
    is_file,
    is_kernels,
    is_socket,
    make_folders,
    open_folder,
    open_written,
    parts_of,
    status_of,
    unlink,
)
from mounts import mounts
from syscalls import PlaceError

COPIED_BYTES = 256 << 20  # a longer file is taken for one that only grows: cut back, not copied
LISTED = 10_000  # names in one folder; a fuller one is not looked after
SYSTEM = ("/bin", "/sbin", "/lib", "/lib64", "/usr", "/etc", "/proc", "/sys", "/dev")  # nor what lies directly in these

HELD = (stat.S_IFREG, stat.S_IFDIR, stat.S_IFIFO)
Stamp = list[int]  # size, time of the last change


class Keeper:
    """For one place. `folders`: where the rank writes; `since_ns`: what changed later changed here; `shared`: what is
    bound from outside, where the rank's are only the files that it has open; `ours`: the output."""

    def __init__(self, folders: list[str], since_ns: int, *, shared: list[str], ours: list[str]) -> None:
        self._folders = set(folders)
        self._since_ns = since_ns
        self._shared = tuple(shared)
        self._ours = frozenset(ours)
        self._copies: dict[tuple[str, int, int], Path] = {}
        self._layers = upper_layers()

    def keep(self, pids: list[int], into: Path) -> dict[str, Any]:
        """What must be there, and as it was, when the image is restored."""
        into.mkdir()
        opened = [item for pid in pids for item in open_files(pid).items() if not is_kernels(item[0])]
        written = {path for path, is_written in opened if is_written} - self._ours
        folders = {str(Path(path).parent) for path, _ in opened} | {place for pid in pids if (place := working(pid))}
        sockets = [path for path in bound_sockets(pids) if path not in self._ours]
        watched = self._folders | {str(Path(path).parent) for path in written}
        listing = {folder: names for folder in sorted(watched) if (names := self._list(folder)) is not None}
        changed = {path for folder in listing for path in self._changed_here(folder)}
        mapped = {path for pid in pids for path in mapped_files(pid)}
        files = enumerate(sorted(written | changed))
        return {
            "files": [self._keep(path, into / str(number), is_mapped=path in mapped) for number, path in files],
            "folders": sorted(folders | {str(Path(path).parent) for path in sockets}),
            "held": {path: kind for pid in pids for path, kind in held(pid).items()},
            "sockets": sockets,
            "listing": listing,
        }

    def put_back(self, kept: dict[str, Any], copies: Path) -> list[str]:
        """Before the restore, when nobody has them open. Paths of what could not be made as it was."""
        for folder in (*kept["folders"], *kept["listing"]):
            if not is_kernels(folder):
                make_folders(folder)
        for path in kept["sockets"]:
            unlink(path)  # the restore binds it again
        copied = {file["path"] for file in kept["files"]}
        left = [path for folder, names in kept["listing"].items() for path in self._sweep(folder, names, copied)]
        for file in kept["files"]:
            if not put(file, copies) or (file["copy"] is None and file["is_mapped"]):
                left.append(file["path"])
        for path, kind in kept["held"].items():  # the engine would follow a link that the program left there
            if exact_kind(path) != kind:
                raise PlaceError(f"{path} was open at the checkpoint, and the program has removed or replaced it")
        return left

    def _keep(self, path: str, to: Path, *, is_mapped: bool) -> dict[str, Any]:
        """What did not change since an earlier image is shared with it. is_mapped: writable and shared."""
        status = status_of(path)
        if status is None:
            raise PlaceError(f"{path} was removed while it was being saved")
        small = status.st_size <= COPIED_BYTES
        if small:
            version = (path, status.st_size, status.st_mtime_ns)
            try:
                is_shared = linked(self._copies[version], path, to)
            except (KeyError, OSError):  # none, or its image was forgotten
                is_shared = False
            if not is_shared:
                status = copy_out(path, to)
                self._copies[version] = to
        return {
            "path": path,
            "copy": to.name if small else None,
            "inode": status.st_ino,
            "parts": "" if small else parts_of(path, status.st_size),
            "is_mapped": is_mapped,
            "size_bytes": status.st_size,
            "mode": stat.S_IMODE(status.st_mode),
            "uid": status.st_uid,
            "gid": status.st_gid,
            "mtime_ns": status.st_mtime_ns,
        }

    def _list(self, folder: str) -> dict[str, Stamp] | None:
        """Every name in it; None where it is not looked after."""
        if folder in SYSTEM or is_kernels(folder) or self._is_shared(folder):
            return None
        try:
            found = {entry.name: stamp(entry) for entry in entries(folder)}
        except OSError:
            return None
        return None if len(found) > LISTED else found

    def _changed_here(self, folder: str) -> Iterator[str]:
        for entry in entries(folder):
            path = f"{folder}/{entry.name}"
            is_own = entry.is_file(follow_symlinks=False) and not self._is_shared(path)
            changed_ns = entry.stat(follow_symlinks=False).st_ctime_ns
            if is_own and self._is_from_here(path) and changed_ns >= self._since_ns:
                yield path

    def _sweep(self, folder: str, names: dict[str, Stamp], copied: set[str]) -> Iterator[str]:
        """Takes away what is new and cuts what has grown; yields what is neither and not as it was."""
        there = {}
        for entry in entries(folder):
            name, path = entry.name, f"{folder}/{entry.name}"
            there[name] = entry
            if self._is_shared(path) or path in copied or names.get(name) == stamp(entry):
                continue
            if not self._is_from_here(path):  # the machine's own, which goes on living below this place
                continue
            if name not in names:
                remove(folder, entry)
            elif entry.is_file(follow_symlinks=False):
                size_bytes = names[name][0]
                if entry.stat(follow_symlinks=False).st_size > size_bytes:
                    with os.fdopen(open_written(path), "r+b") as file:
                        file.truncate(size_bytes)
                else:
                    yield path
        gone = {f"{folder}/{name}" for name in names.keys() - there.keys()} - copied
        yield from (path for path in sorted(gone) if self._is_from_here(path))

    def _is_from_here(self, path: str) -> bool:
        """Whether it was written in this place, where that can be seen: it lies in the layer above the machine's."""
        point = max((point for point in self._layers if path.startswith(f"{point.rstrip('/')}/")), key=len, default="")
        layer = self._layers.get(point)
        return layer is None or os.path.lexists(layer + path[len(point.rstrip("/")) :])

    def _is_shared(self, path: str) -> bool:
        return any(f"{path}/".startswith(f"{shared}/") for shared in self._shared)


def upper_layers() -> dict[str, str | None]:
    """Of every mount point the folder where an overlay keeps what was written there; None where there is none to
    see."""
    layers: dict[str, str | None] = {}
    for mount in mounts():
        upper = next((word[9:] for word in mount.options.split(",") if word.startswith("upperdir=")), "")
        layers[mount.point] = upper if mount.kind == "overlay" and Path(upper or "/nowhere").is_dir() else None
    return layers


def processes() -> dict[int, list[int]]:
    """Every other process of this PID namespace, with its threads."""
    found = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            with contextlib.suppress(OSError):  # it has just ended
                found[int(entry.name)] = [int(task.name) for task in (entry / "task").iterdir()]
    return found


def bound_sockets(pids: list[int]) -> list[str]:
    """Paths in the file system that Unix sockets of these processes are bound to."""
    held = {inode for pid in pids for inode in socket_inodes(pid)}
    lines = Path("/proc/net/unix").read_text().splitlines()[1:]
    bound = {fields[7] for line in lines if len(fields := line.split(maxsplit=7)) == 8 and fields[6] in held}
    named = [path for path in bound if path.startswith("/")]
    if behind := [path for path in named if is_behind_link(path)]:
        raise PlaceError(f"the program's socket {behind[0]} is behind a link: it could not be bound again")
    return sorted(path for path in named if is_socket(path))


def socket_inodes(pid: int) -> Iterator[str]:
    with contextlib.suppress(OSError):
        for entry in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(OSError):
                kind, _, number = str(entry.readlink()).partition(":")
                if kind == "socket":
                    yield number.strip("[]")


def open_files(pid: int) -> dict[str, bool]:
    """Regular files that have a name (the engine keeps those that have none any more), and whether for writing."""
    found: dict[str, bool] = {}
    with contextlib.suppress(OSError):
        for entry in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(OSError):
                path = str(entry.readlink())
                if is_file(path):
                    found[path] = found.get(path, False) or is_written(Path(f"/proc/{pid}/fdinfo", entry.name))
    return found | dict.fromkeys(mapped_files(pid), True)


def mapped_files(pid: int) -> set[str]:
    """Regular files that have a name and that it can store into through a shared mapping."""
    found = set()
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
            fields = line.split(maxsplit=5)
            if len(fields) == 6 and fields[1][1] == "w" and fields[1][3] == "s" and is_file(fields[5]):
                found.add(fields[5])
    return found


def held(pid: int) -> dict[str, int]:
    """What the engine opens again by its path, with its kind: files, folders and FIFOs, also mapped ones, the program,
    and where it works. Of what has no name any more the folder that it lay in, for the engine makes it there again."""
    found: dict[str, int] = {}
    root = Path(f"/proc/{pid}")
    links = [root / "cwd", root / "exe", root / "root"]
    for folder in (root / "fd", root / "map_files"):
        with contextlib.suppress(OSError):
            links += folder.iterdir()
    for link in links:
        with contextlib.suppress(OSError):
            path, kind = str(link.readlink()), stat.S_IFMT(link.stat().st_mode)
            if path.startswith("/") and not path.startswith(("/proc/", "/sys/")) and kind in HELD:
                if exact_kind(path) != kind:
                    path, kind = str(Path(path).parent), stat.S_IFDIR
                if exact_kind(path) == kind:
                    found[path] = kind
    return found


def is_written(info: Path) -> bool:
    flags = next(line for line in info.read_text().splitlines() if line.startswith("flags:")).split()[1]
    return int(flags, 8) & os.O_ACCMODE != os.O_RDONLY


def working(pid: int) -> str:
    with contextlib.suppress(OSError):
        return str(Path(f"/proc/{pid}/cwd").readlink())
    return ""


def stamp(entry: os.DirEntry[str]) -> Stamp:
    """Of a folder only that it is there: what is in it is not looked after."""
    if entry.is_dir(follow_symlinks=False):
        return [0, 0]
    return version_of(entry.stat(follow_symlinks=False))


def entries(folder: str) -> Iterator[os.DirEntry[str]]:
    """What is in it; each can be asked for its status until the next one is given."""
    found = open_folder(folder)
    try:
        with os.scandir(found) as listed:
            yield from list(listed)
    finally:
        os.close(found)


def linked(earlier: Path, path: str, to: Path) -> bool:
    """Gives a copy another name where the file still has its bytes. An image that was forgotten is followed by others
    of its number: then another file's copy may lie there."""
    if not holds(earlier, path):
        return False
    os.link(earlier, to)
    return True


def version_of(status: os.stat_result) -> Stamp:
    return [status.st_size, status.st_mtime_ns]


def put(file: dict[str, Any], copies: Path) -> bool:
    """Whether it is as it was now: of a file without a copy only the length can be put back. One that was written over
    keeps the time of that, and so is known again."""
    path = file["path"]
    make_folders(str(Path(path).parent))
    status = status_of(path)
    if status is not None and not stat.S_ISREG(status.st_mode):
        status = None
    has_copy = file["copy"] is not None
    can_be = has_copy or (status is not None and has_only_grown(file, status))
    looks_same = status is not None and version_of(status) == [file["size_bytes"], file["mtime_ns"]]
    if looks_same and can_be and (not has_copy or holds(copies / file["copy"], path)):
        return True
    with os.fdopen(open_written(path), "r+b") as target:
        if has_copy:
            target.truncate(0)
            with (copies / file["copy"]).open("rb") as copy:
                shutil.copyfileobj(copy, target, 1 << 20)
        target.truncate(file["size_bytes"])
        os.fchown(target.fileno(), file["uid"], file["gid"])
        os.fchmod(target.fileno(), file["mode"])
        target.flush()
        if can_be:
            os.utime(target.fileno(), ns=(file["mtime_ns"], file["mtime_ns"]))
    return can_be


def has_only_grown(file: dict[str, Any], status: os.stat_result) -> bool:
    """Whether its first bytes are what the file was, as far as its time and parts of it tell. A program that runs again
    may have removed it and written the same; one that writes over it in place may do so between the parts."""
    size_bytes = file["size_bytes"]
    is_as_long = status.st_ino == file["inode"] and status.st_size == size_bytes
    if status.st_size < size_bytes or (is_as_long and status.st_mtime_ns != file["mtime_ns"]):
        return False
    return parts_of(file["path"], size_bytes) == file["parts"]


def remove(folder: str, entry: os.DirEntry[str]) -> None:
    inside = open_folder(folder)
    try:
        if entry.is_dir(follow_symlinks=False):
            shutil.rmtree(entry.name, ignore_errors=True, dir_fd=inside)
        elif entry.is_file(follow_symlinks=False) or entry.is_symlink():
            with contextlib.suppress(FileNotFoundError):
                os.unlink(entry.name, dir_fd=inside)
    finally:
        os.close(inside)
