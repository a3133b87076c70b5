"""A container image made of the rank's own installed files: no base image, no registry.

The environment's layer depends only on those files, so it is made once; a capsule's own layer lies on top of it.
"""

from __future__ import annotations

import os
import stat
import tarfile
import threading
from collections.abc import Iterator
from pathlib import Path

from prismdbg.errors import FacilityError
from prismdbg.runtime.docker_engine import Engine
from prismdbg.runtime.environment import Environment, InstalledFile
from prismdbg.runtime.spec import LaidFile, ReplaySpec

REPOSITORY = "prismdbg/env"
_CHUNK_BYTES = 1 << 20
# Folders that a container is given, or that programs expect to find, with their modes.
_EMPTY_FOLDERS = {
    "proc": 0o555,
    "sys": 0o555,
    "dev": 0o755,
    "run": 0o755,
    "tmp": 0o1777,
    "var/tmp": 0o1777,
    "root": 0o700,
}


def environment_tag(environment: Environment) -> str:
    return f"{REPOSITORY}:{environment.key}"


def ensure_environment_image(engine: Engine, environment: Environment) -> str:
    """The tag of the environment's image; made if this engine has none."""
    tag = environment_tag(environment)
    if not engine.has_image(tag):
        environment.check_unchanged()
        repository, _, version = tag.partition(":")
        engine.import_image(repository, version, tar_stream(environment))
    return tag


def tar_stream(environment: Environment) -> Iterator[bytes]:
    """The layer as it is written, so that no copy of gigabytes lies on the disk."""
    reading, writing = os.pipe()
    failure: list[BaseException] = []

    def write() -> None:
        try:
            with (
                os.fdopen(writing, "wb") as pipe,
                tarfile.open(fileobj=pipe, mode="w|", format=tarfile.PAX_FORMAT) as tar,
            ):
                _add_environment(tar, environment)
        except BaseException as error:
            failure.append(error)

    thread = threading.Thread(target=write, name="prismdbg-image", daemon=True)
    thread.start()
    with os.fdopen(reading, "rb") as pipe:
        while chunk := pipe.read(_CHUNK_BYTES):
            yield chunk
    thread.join()
    if failure:
        raise FacilityError(f"the image could not be made: {failure[0]}", hint="the files changed meanwhile: try again")


def add_rank_files(tar: tarfile.TarFile, spec: ReplaySpec, known: frozenset[str]) -> None:
    """The rank's own files, and the folders they need beside those in `known`.

    Nothing below a bind: Docker would unpack it into the host's folder.
    """
    bound = tuple(f"{bind.target.rstrip('/')}/" for bind in spec.all_binds())
    owner = (spec.uid, spec.gid)
    made = set(known)
    for folder in spec.folders:
        if not f"{folder}/".startswith(bound):
            _add_folders(tar, folder, made, owner)
    for file in spec.files:
        if not file.target.startswith(bound):
            _add_folders(tar, str(Path(file.target).parent), made, owner)
            _add_laid(tar, file, owner)


def _add_environment(tar: tarfile.TarFile, environment: Environment) -> None:
    folders = {folder: InstalledFile(folder, _mode_of(folder)) for folder in environment.folders if folder != "/"}
    for name, mode in _EMPTY_FOLDERS.items():
        folders.setdefault(f"/{name}", InstalledFile(f"/{name}", mode))
    for path in sorted(folders):
        tar.addfile(_folder(path, folders[path].mode, (0, 0)))
    for file in environment.files:
        _add_installed(tar, file)
        for compiled in _byte_code(file.path):
            _add_installed(tar, compiled)


def _add_installed(tar: tarfile.TarFile, file: InstalledFile) -> None:
    info = tarfile.TarInfo(file.path.lstrip("/"))
    if file.target:
        info.type, info.linkname, info.mode = tarfile.SYMTYPE, file.target, 0o777
        tar.addfile(info)
        return
    status = Path(file.path).stat()
    info.mode, info.mtime = file.mode, file.mtime_ns // 10**9
    info.pax_headers = {"mtime": f"{file.mtime_ns // 10**9}.{file.mtime_ns % 10**9:09d}"}
    info.uid, info.gid, info.size = status.st_uid, status.st_gid, file.size_bytes
    with Path(file.path).open("rb") as content:
        tar.addfile(info, content)


def _add_laid(tar: tarfile.TarFile, file: LaidFile, owner: tuple[int, int]) -> None:
    info = tarfile.TarInfo(file.target.lstrip("/"))
    there = file.source.stat()
    info.size = there.st_size if file.size_bytes is None else min(file.size_bytes, there.st_size)
    if file.size_bytes is not None and file.size_bytes > there.st_size:
        raise FacilityError(
            f"{file.source} is shorter than {file.target} was: {there.st_size} of {file.size_bytes} bytes"
        )
    info.mode, (info.uid, info.gid) = file.mode, owner
    info.mtime = (there.st_mtime_ns if file.mtime_ns is None else file.mtime_ns) / 10**9
    with file.source.open("rb") as content:
        tar.addfile(info, content)


def _add_folders(tar: tarfile.TarFile, folder: str, made: set[str], owner: tuple[int, int]) -> None:
    for path in (*reversed([str(parent) for parent in Path(folder).parents]), folder):
        if path != "/" and path not in made and path.lstrip("/") not in _EMPTY_FOLDERS:
            tar.addfile(_folder(path, 0o755, owner))
        made.add(path)


def _folder(path: str, mode: int, owner: tuple[int, int]) -> tarfile.TarInfo:
    info = tarfile.TarInfo(path.lstrip("/"))
    info.type, info.mode, (info.uid, info.gid) = tarfile.DIRTYPE, mode, owner
    return info


def _mode_of(folder: str) -> int:
    try:
        return stat.S_IMODE(Path(folder).stat().st_mode)
    except OSError:
        return 0o755


def _byte_code(path: str) -> Iterator[InstalledFile]:
    """Compiled modules beside a source: nobody's identity, but an import without them takes many times as long."""
    if path.endswith(".py"):
        folder, _, name = path.rpartition("/")
        for compiled in _listing(f"{folder}/__pycache__").get(name[:-3], ()):
            if (file := InstalledFile.at(compiled)) is not None:
                yield file


_last_listing: tuple[str, dict[str, list[str]]] = ("", {})


def _listing(folder: str) -> dict[str, list[str]]:
    """Byte code files of a folder by module. Files come sorted by folder, so the last listing is kept."""
    global _last_listing
    if _last_listing[0] != folder:
        found: dict[str, list[str]] = {}
        try:
            for entry in os.scandir(folder):
                found.setdefault(entry.name.partition(".")[0], []).append(entry.path)
        except OSError:
            pass
        _last_listing = (folder, found)
    return _last_listing[1]
