"""What stands in the layers of a rank's image: installed files, and the rank's own files. Writes tar members."""

from __future__ import annotations

import os
import stat
import tarfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

from prismdbg.capsule import path_kind
from prismdbg.capsule.exact_file import open_known, open_real
from prismdbg.capsule.limits import MAX_MADE_FOLDERS
from prismdbg.capsule.rank_path import require_outside_kernel
from prismdbg.errors import CapsuleError, FacilityError
from prismdbg.runtime.environment import Environment, InstalledFile
from prismdbg.runtime.limits import reached
from prismdbg.runtime.spec import LaidFile, ReplaySpec
from prismdbg.runtime.visible import open_installed

# Folders that a container is given, or that programs expect to find, with their modes.
_EMPTY_FOLDERS = {
    "/proc": 0o555,
    "/sys": 0o555,
    "/dev": 0o755,
    "/run": 0o755,
    "/tmp": 0o1777,
    "/var/tmp": 0o1777,
    "/root": 0o700,
}
_ROOT = (0, 0)
_MOST_STEPS = 1000


def add_environment(
    tar: tarfile.TarFile, environment: Environment, on_added: Callable[[InstalledFile], None] = lambda _: None
) -> None:
    """Owners and modes as they are; byte code too, without which an import takes many times as long."""
    modes = {**{folder: _mode_of(folder) for folder in environment.folders - {"/"}}, **_EMPTY_FOLDERS}
    modes.setdefault("/var", 0o755)
    for path in sorted(modes):
        tar.addfile(_folder(path, modes[path], _ROOT))
    byte_code = _ByteCode()
    for file in environment.files:
        _add_installed(tar, file)
        for compiled in byte_code.of(file):
            _add_installed(tar, compiled)
        on_added(file)


def add_rank_files(
    tar: tarfile.TarFile, spec: ReplaySpec, environment: Environment, *, bound: Iterable[str] | None = None
) -> None:
    """The rank's own files, and the folders they need beside those of the environment.

    Nothing at or below a bind (`bound`: their targets): Docker would unpack it into the host's folder.
    """
    targets = [bind.target for bind in spec.all_binds()] if bound is None else list(bound)
    links = {file.path: file.target for file in environment.files if file.target} | dict(spec.links)
    below = tuple({f"{target}/" for target in targets} | {_leads_to(target, links) for target in targets})
    owner = (spec.uid, spec.gid)
    made = {*environment.folders, *_EMPTY_FOLDERS}
    for path, target in spec.links:
        if not _is_below(path, below, links):
            _add_folders(tar, str(Path(path).parent), made, owner)
            tar.addfile(_link(path, target, owner))
            made.add(path)
    for folder in spec.folders:
        if not _is_below(folder, below, links):
            _add_folders(tar, folder, made, owner)
    left_bytes = spec.limits.disk_bytes
    for file in spec.files:
        if not _is_below(file.target, below, links):
            _add_folders(tar, str(Path(file.target).parent), made, owner)
            if file.source is not None:
                left_bytes -= _add_laid(tar, file, file.source, owner)
                if left_bytes < 0:  # one content may be named for any number of files
                    raise reached("disk", spec.limits)


def _is_below(path: str, binds: tuple[str, ...], links: Mapping[str, str]) -> bool:
    """By its name, or where that leads."""
    require_outside_kernel(path)
    return f"{path}/".startswith(binds) or _leads_to(path, links).startswith(binds)


def _leads_to(path: str, links: Mapping[str, str]) -> str:
    """Where it lies once the links among the installed files are followed; with a slash behind it."""
    waiting, done = path.split("/")[1:], ""
    for _ in range(_MOST_STEPS):
        if not waiting:
            return f"{done}/"
        step = os.path.normpath(f"{done}/{waiting.pop(0)}")
        if (target := links.get(step)) is None:
            done = step
        else:
            waiting = [*os.path.normpath(Path(done or "/", target)).split("/")[1:], *waiting]
            done = ""
    raise CapsuleError(f"{path} is a link loop", hint="fetch the capsule again: this copy was altered")


def _add_installed(tar: tarfile.TarFile, file: InstalledFile) -> None:
    info = tarfile.TarInfo(file.path.lstrip("/"))
    if file.target:
        info.type, info.linkname, info.mode = tarfile.SYMTYPE, file.target, 0o777
        tar.addfile(info)
        return
    with open_installed(file.path) as content:
        status = os.fstat(content.fileno())
        if status.st_size != file.size_bytes:
            raise FacilityError(f"{file.path} changed while the container image was built", hint="try again")
        info.mode, info.uid, info.gid, info.size = file.mode, status.st_uid, status.st_gid, file.size_bytes
        _set_time(info, file.mtime_ns)
        tar.addfile(info, content)


def _add_laid(tar: tarfile.TarFile, file: LaidFile, source: Path, owner: tuple[int, int]) -> int:
    """How many bytes it takes."""
    info = tarfile.TarInfo(file.target.lstrip("/"))
    with open_real(str(source)) if file.known is None else open_known(file.known) as content:
        there = os.fstat(content.fileno())
        info.size = there.st_size if file.size_bytes is None else file.size_bytes
        if info.size > there.st_size:
            raise FacilityError(
                f"{source} is shorter than {file.target} at the capture: {there.st_size} of {info.size} bytes",
                hint="capture the rank again, or fetch the capsule again: it is damaged",
            )
        info.mode, (info.uid, info.gid) = file.mode, owner
        _set_time(info, there.st_mtime_ns if file.mtime_ns is None else file.mtime_ns)
        tar.addfile(info, content)
    return info.size


def _set_time(info: tarfile.TarInfo, time_ns: int) -> None:
    """To the nanosecond: Python compares its byte code with the source's time, a float would round it."""
    info.mtime = time_ns // 10**9
    info.pax_headers = {"mtime": f"{time_ns // 10**9}.{time_ns % 10**9:09d}"}


def _add_folders(tar: tarfile.TarFile, folder: str, made: set[str], owner: tuple[int, int]) -> None:
    for path in (*reversed([str(parent) for parent in Path(folder).parents]), folder):
        if path not in made:
            if len(made) >= MAX_MADE_FOLDERS:
                raise CapsuleError(
                    f"the capsule names files in more than {MAX_MADE_FOLDERS:,} folders",
                    hint="fetch the capsule again: this copy was altered",
                )
            tar.addfile(_folder(path, 0o755, owner))
            made.add(path)


def _link(path: str, target: str, owner: tuple[int, int]) -> tarfile.TarInfo:
    info = tarfile.TarInfo(path.lstrip("/"))
    info.type, info.linkname, info.mode, (info.uid, info.gid) = tarfile.SYMTYPE, target, 0o777, owner
    return info


def _folder(path: str, mode: int, owner: tuple[int, int]) -> tarfile.TarInfo:
    info = tarfile.TarInfo(path.lstrip("/"))
    info.type, info.mode, (info.uid, info.gid) = tarfile.DIRTYPE, mode, owner
    return info


def _mode_of(folder: str) -> int:
    try:
        return stat.S_IMODE(Path(folder).stat().st_mode)
    except OSError:
        return 0o755


class _ByteCode:
    """Compiled modules beside a source. Sources come sorted by folder, so the last listing is kept."""

    def __init__(self) -> None:
        self._folder = ""
        self._found: dict[str, list[str]] = {}

    def of(self, source: InstalledFile) -> Iterator[InstalledFile]:
        """Of a link none: it may lie anywhere, and what it leads to is listed itself."""
        if source.target or not source.path.endswith(".py"):
            return
        folder, _, name = source.path.rpartition("/")
        if folder != self._folder:
            self._folder, self._found = folder, self._list(f"{folder}/__pycache__")
        for compiled in self._found.get(name.removesuffix(".py"), ()):
            if (file := InstalledFile.at(compiled)) is not None:
                yield file

    def _list(self, folder: str) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        if path_kind.is_link(folder):
            return found
        try:
            with os.scandir(folder) as entries:
                for entry in entries:
                    found.setdefault(entry.name.partition(".")[0], []).append(entry.path)
        except OSError:
            return {}
        return found
