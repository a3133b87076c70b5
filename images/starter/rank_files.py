"""The rank's own files at the paths it knows, as long as they were. Standard library only.

Laid by a process that can do nothing but write files, beneath the root of the rank's place.
"""

from __future__ import annotations

import os
import shutil
import stat
from pathlib import Path
from typing import Any, BinaryIO

import user_namespace
from confine import FILE_CAPABILITIES, KEPT_CAPABILITIES, hold_capabilities, lay_filter
from exact_paths import open_exact, open_known
from rooted_tree import Owner, RootedTree, require_ordinary
from syscalls import PlaceError

Spec = dict[str, Any]


def write_files(spec: Spec, root: str) -> None:
    """As another process where this one has more privileges than that takes."""
    if spec["isolation"] == "none":
        write_all(spec, root)
        return
    said, saying = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            hold_capabilities(KEPT_CAPABILITIES[name] for name in FILE_CAPABILITIES)
            lay_filter(bytes.fromhex(spec["seccomp"]))
            write_all(spec, root)
        except BaseException as error:
            os.write(saying, (str(error) or type(error).__name__).encode())
        finally:
            os._exit(0)
    os.close(saying)
    with os.fdopen(said, "rb") as pipe:
        reason = pipe.read().decode(errors="replace")
    os.waitpid(child, 0)
    if reason:
        raise PlaceError(f"the rank's files cannot be installed: {reason}")


def write_all(spec: Spec, root: str) -> None:
    owner = user_namespace.owner(spec, spec["uid"], spec["gid"]) if os.geteuid() == 0 else (-1, -1)
    with RootedTree(root) as tree:
        for path, target in spec["links"]:
            require_ordinary(path)
            require_ordinary(target)
            tree.link(path, target)
        for folder in spec["folders"]:
            tree.make_folder(folder, owner)
        for file in spec["files"]:
            write_file(tree, file, owner)


def open_source(file: dict[str, Any]) -> BinaryIO:
    """A regular file, through no link. One of this machine must be the one that was looked at."""
    if file["known"] is None:
        held = open_exact(file["source"], os.O_PATH | os.O_NOFOLLOW)
    else:
        held = open_known(file["known"])
    try:
        if not stat.S_ISREG(os.fstat(held).st_mode):
            raise PlaceError(f"{file['source']} is not a regular file")
        return os.fdopen(os.open(f"/proc/self/fd/{held}", os.O_RDONLY | os.O_CLOEXEC), "rb")
    finally:
        os.close(held)


def write_file(tree: RootedTree, file: dict[str, Any], owner: Owner) -> None:
    source, target = file["source"], file["target"]
    require_ordinary(target)
    tree.make_folder(str(Path(target).parent), owner)
    there = tree.open_file(target, create=True)
    with os.fdopen(there, "wb") as out:
        length = file["size_bytes"]
        if source is not None:
            with open_source(file) as content:
                status = os.fstat(content.fileno())
                length = status.st_size if length is None else length
                is_there = os.path.samestat(status, os.fstat(there))
                if is_there and length == status.st_size:
                    return
                if not is_there:
                    os.ftruncate(there, 0)
                    shutil.copyfileobj(content, out, 1 << 20)
            out.flush()
        os.ftruncate(there, length)
        os.fchown(there, *owner)
        os.fchmod(there, file["mode"])
        if file["mtime_ns"] is not None:
            os.utime(there, ns=(file["mtime_ns"], file["mtime_ns"]))
