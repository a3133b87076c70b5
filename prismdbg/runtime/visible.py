"""What of this machine a rank may see in namespaces: the system's programs and libraries, and the installations that
the capsule's list names. Not homes, not /var, not /run, nothing of /etc but what every program reads.

The list is the capsule's, so it is held against what is really an installation here: a capsule cannot have other files
shown to its program by calling them installed. Where a name leads through links, what it leads to must be as much of an
installation as the name. What was looked at is what is shown (`exact_file`).
"""

from __future__ import annotations

import os
import pwd
import shlex
import stat
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import BinaryIO

from prismdbg.capsule import path_kind, rank_path
from prismdbg.capsule.exact_file import Known, known, known_of, open_real
from prismdbg.capsule.rank_path import problem, require_outside_kernel
from prismdbg.errors import CapsuleError, FacilityError, PrismError
from prismdbg.model.typed_path import home
from prismdbg.runtime.environment import Environment, InstalledFile
from prismdbg.runtime.spec import LaidFile

SYSTEM = ("/bin", "/lib", "/lib32", "/lib64", "/libx32", "/sbin", "/usr")
_SYSTEM = tuple(f"{folder}/" for folder in SYSTEM)
_ETC_FILES = (
    "debian_version",
    "environment",
    "group",
    "host.conf",
    "inputrc",
    "ld.so.cache",
    "ld.so.conf",
    "localtime",
    "mime.types",
    "nsswitch.conf",
    "os-release",
    "passwd",
    "protocols",
    "services",
    "ssl/openssl.cnf",
    "timezone",
)
_ETC_FOLDERS = ("alternatives", "fonts", "ld.so.conf.d", "pki/tls/certs", "ssl/certs")
_LISTED_FILES = frozenset(f"/etc/{name}" for name in _ETC_FILES)
_LISTED_FOLDERS = tuple(f"/etc/{name}/" for name in _ETC_FOLDERS)
# Never taken for an installation as a whole, whatever lies in them.
_TOO_WIDE = frozenset(
    ("/", "/data", "/etc", "/home", "/mnt", "/opt", "/root", "/run", "/srv", "/tmp", "/var", "/var/tmp")
)
_ELF, _CORE = b"\x7fELF", b"\x04\x00"  # a core dump is one, too, and holds a process' memory


@dataclass(frozen=True, slots=True, kw_only=True)
class Visible:
    """folders: with all that is in them; files: one by one, both by where they are seen; links: where they lie, and
    where they lead; copies: small files that the rank gets its own of."""

    folders: Mapping[str, Known] = field(default_factory=lambda: MappingProxyType({}))
    files: Mapping[str, Known] = field(default_factory=lambda: MappingProxyType({}))
    links: tuple[tuple[str, str], ...] = ()
    copies: tuple[LaidFile, ...] = ()


NOTHING = Visible()


def visible(environment: Environment | None, python: str, *, laid: Iterable[str] = ()) -> Visible:
    """`python`: the rank's interpreter, by which its installation is found where there is no list. What is `laid` is
    not shown beside. `CapsuleError` for a list that names what is no installed file here."""
    folders: set[str] = set()
    files: dict[str, Known] = {}
    links: dict[str, str] = {}
    for file in environment.files if environment is not None else _interpreter(python):
        _sort(file, folders, files, links)
    for path in SYSTEM:
        if path_kind.is_link(path):
            links[path] = str(Path(path).readlink())
        elif path_kind.is_folder(path):
            folders.add(path)
    folders |= {f"/etc/{name}" for name in _ETC_FOLDERS if _is_plain_folder(f"/etc/{name}")}
    return Visible(
        folders={path: _known(path) for path in sorted(folders)},
        files={path: files[path] for path in sorted(files.keys() - set(laid))},
        links=tuple(sorted(links.items())),
        copies=tuple(_copies()),
    )


def require_installed(environment: Environment) -> None:
    """`CapsuleError` naming a file of the list that is no installed file of this machine. It may be missing."""
    for file in environment.files:
        require_outside_kernel(file.path)
        if not (file.target or _is_installed(_real_path(file.path))) and os.path.lexists(file.path):
            open_installed(file.path).close()


def open_installed(path: str) -> BinaryIO:
    """For reading: the file of the list, or where the folders on its way lead. `CapsuleError` where that is in no
    installation; `FacilityError` where it cannot be read."""
    require_outside_kernel(path)
    real = _real_path(path)
    is_installed = _is_installed(real)
    try:
        content = open_real(real)
    except OSError as error:
        if is_installed:
            raise FacilityError(f"{path} cannot be read: {error.strerror}", hint="run prismdbg as its owner") from None
        raise not_installed(path) from None
    if is_installed or _is_code(content):
        return content
    content.close()
    raise not_installed(path)


def not_installed(path: str) -> PrismError:
    if folder := next((folder for folder in map(str, Path(path).parents) if _is_everybodys(folder)), ""):
        return FacilityError(
            f"{path} is not available to the rank: {folder} looks like an installation, but is writable by everyone",
            hint=f"run `chmod o-w {shlex.quote(folder)}`, if all in it is meant to be read",
        )
    return CapsuleError(
        f"the capsule lists {path} as an installed file, but it is in no installation on this machine",
        hint="fetch the capsule again: this copy was altered",
    )


def installation_of(path: str) -> str:
    """The folder of the interpreter, virtual environment or packages that `path` lies in; empty where it is in none."""
    return _installation_around(path.rpartition("/")[0])


def _is_installed(path: str) -> bool:
    """Whether it is for everybody's use, or in an installation. No part of `path` is a link."""
    return _is_in_system(path) or _is_listed_etc(path) or installation_of(path) != ""


@cache
def _installation_around(folder: str) -> str:
    """The topmost one."""
    if folder in ("", "/"):
        return ""
    if above := _installation_around(str(Path(folder).parent)):
        return above
    return folder if not problem(folder) and _is_installation(folder) and _leads_to_one(folder) else ""


def _leads_to_one(folder: str) -> bool:
    real = _real(folder)
    return real == folder or _is_installed(f"{real}/")


def _is_installation(folder: str) -> bool:
    return folder not in _too_wide() and _is_folder_of_few(folder) and _looks_like_one(Path(folder))


def _is_everybodys(folder: str) -> bool:
    """Whether it would be an installation, were it not for who may write to it."""
    return folder not in _too_wide() and not _is_folder_of_few(folder) and _looks_like_one(Path(folder))


def _looks_like_one(path: Path) -> bool:
    return (
        path.name in ("site-packages", "dist-packages")
        or path_kind.is_file(path / "pyvenv.cfg")
        or path_kind.is_folder(path / "conda-meta")
        or path_kind.is_file(path / "os.py")
        or any(path.glob("lib/python3*/os.py"))
    )


def _is_folder_of_few(folder: str) -> bool:
    """Not one like /tmp or /scratch, in which anybody can put what makes it look like an installation."""
    try:
        mode = Path(folder).stat().st_mode
    except OSError:
        return False
    return stat.S_ISDIR(mode) and not mode & (stat.S_ISVTX | stat.S_IWOTH)


@cache
def _real(folder: str) -> str:
    """Of "" and "/" the empty string, as before the first slash of a path."""
    return os.path.realpath(folder).rstrip("/") if folder else ""


def _real_path(path: str) -> str:
    """With the folders on the way resolved; the file itself may still be a link."""
    folder, _, name = path.rpartition("/")
    return f"{_real(folder)}/{name}"


@cache
def _too_wide() -> frozenset[str]:
    folders = _TOO_WIDE | _homes()
    return folders | {os.path.realpath(folder) for folder in folders}


@cache
def _homes() -> frozenset[str]:
    return frozenset({user.pw_dir.rstrip("/") for user in pwd.getpwall()} | {str(home())})


def _sort(file: InstalledFile, folders: set[str], files: dict[str, Known], links: dict[str, str]) -> None:
    """A library that is in no installation and has changed since the capture is passed over, as a missing one is: its
    owner may keep it from others."""
    path = file.path
    require_outside_kernel(path)
    if _is_in_system(path) or path.startswith("/etc/"):
        return
    if folder := installation_of(path):
        folders.add(folder)
    elif path_kind.is_link(path):
        links[path] = str(Path(path).readlink())
    elif os.path.lexists(path):
        real = _real_path(path)
        with open_installed(path) as content:
            if _is_installed(real) or _is_unchanged(content, file):
                files[path] = known_of(content, real)


def _is_unchanged(content: BinaryIO, file: InstalledFile) -> bool:
    now = os.fstat(content.fileno())
    return (stat.S_IMODE(now.st_mode), now.st_size, now.st_mtime_ns) == (file.mode, file.size_bytes, file.mtime_ns)


def _is_in_system(path: str) -> bool:
    return path.startswith(_SYSTEM)


def _is_listed_etc(path: str) -> bool:
    return path in _LISTED_FILES or path.startswith(_LISTED_FOLDERS)


def _is_code(content: BinaryIO) -> bool:
    """A library or program that the rank had mapped, from wherever it was built."""
    head = os.pread(content.fileno(), 18, 0)
    return head.startswith(_ELF) and head[16:] != _CORE


def _copies() -> Iterator[LaidFile]:
    for name in _ETC_FILES:
        path = Path("/etc", name)
        try:
            real = path.resolve(strict=True)
            if real.is_file() and os.access(real, os.R_OK):
                yield LaidFile(source=real, target=str(path), mode=0o644)
        except OSError:
            continue


def _is_plain_folder(path: str) -> bool:
    return path_kind.is_folder(path) and not path_kind.is_link(path)


def _known(path: str) -> Known:
    try:
        return known(path)
    except OSError:
        raise not_installed(path) from None


def _interpreter(python: str) -> list[InstalledFile]:
    """It, and where it leads: a virtual environment's is a link into the base installation."""
    found: list[InstalledFile] = []
    python = rank_path.usual(os.path.normpath(python)) if python else ""
    while python and len(found) < 40 and (file := InstalledFile.at(python)) is not None:
        found.append(file)
        if not file.target:
            break
        python = os.path.normpath(Path(python).parent / file.target)
    return found
