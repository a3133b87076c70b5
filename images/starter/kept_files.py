"""The files of a rank that stands still: what it has open for writing, kept with its image, and put back with it.

Standard library only.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

COPIED_BYTES = 256 << 20  # a longer file is taken for one that only grows: cut back, not copied


def processes() -> dict[int, list[int]]:
    """Every other process of this PID namespace, with its threads."""
    found = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            with contextlib.suppress(OSError):  # it has just ended
                found[int(entry.name)] = [int(task.name) for task in (entry / "task").iterdir()]
    return found


def keep(pids: list[int], into: Path, *, output: str, control: str) -> dict[str, Any]:
    """Copies what is open for writing; says what else must be there when the image is restored.

    output: its file, whose length is all that counts; control: our own socket."""
    written, folders = set(), set()
    for pid in pids:
        with contextlib.suppress(OSError):
            folders.add(str(Path(f"/proc/{pid}/cwd").readlink()))
        for path, is_written in _open_files(pid):
            folders.add(str(Path(path).parent))
            if is_written and path != output:
                written.add(path)
    into.mkdir()
    files = [_keep(path, into / str(number)) for number, path in enumerate(sorted(written))]
    sockets = [path for path in bound_sockets() if path != control]
    folders |= {str(Path(path).parent) for path in sockets}
    return {"files": files, "folders": sorted(folders), "sockets": sockets}


def put_back(kept: dict[str, Any], copies: Path) -> None:
    """Before the restore, when nobody has them open."""
    for folder in kept["folders"]:
        Path(folder).mkdir(parents=True, exist_ok=True)
    for socket in kept["sockets"]:
        Path(socket).unlink(missing_ok=True)  # criu binds it again
    for file in kept["files"]:
        target = Path(file["path"])
        if file["copy"] is None:
            target.touch()
            os.truncate(target, file["size_bytes"])
        else:
            shutil.copyfile(copies / file["copy"], target)
        os.chown(target, file["uid"], file["gid"])
        target.chmod(file["mode"])
        os.utime(target, ns=(file["mtime_ns"], file["mtime_ns"]))


def bound_sockets() -> list[str]:
    """Paths of the Unix sockets of this network namespace that lie in the file system."""
    lines = Path("/proc/net/unix").read_text().splitlines()[1:]
    paths = {fields[7] for line in lines if len(fields := line.split(maxsplit=7)) == 8}
    return sorted(path for path in paths if path.startswith("/") and Path(path).is_socket())


def _keep(path: str, copy: Path) -> dict[str, Any]:
    status = Path(path).stat()
    small = status.st_size <= COPIED_BYTES
    if small:
        shutil.copyfile(path, copy)
    return {
        "path": path,
        "copy": copy.name if small else None,
        "size_bytes": status.st_size,
        "mode": stat.S_IMODE(status.st_mode),
        "uid": status.st_uid,
        "gid": status.st_gid,
        "mtime_ns": status.st_mtime_ns,
    }


def _open_files(pid: int) -> Iterator[tuple[str, bool]]:
    """Regular files that have a name (criu itself keeps those that have none any more), and whether for writing."""
    for entry in _entries(Path(f"/proc/{pid}/fd")):
        with contextlib.suppress(OSError):
            path = str(entry.readlink())
            if entry.is_file() and Path(path).is_file():
                yield path, _is_written(Path(f"/proc/{pid}/fdinfo", entry.name))
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
            fields = line.split(maxsplit=5)
            if len(fields) == 6 and fields[1][1] == "w" and fields[1][3] == "s" and Path(fields[5]).is_file():
                yield fields[5], True


def _is_written(info: Path) -> bool:
    flags = next(line for line in info.read_text().splitlines() if line.startswith("flags:")).split()[1]
    return int(flags, 8) & os.O_ACCMODE != os.O_RDONLY


def _entries(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except OSError:
        return []
