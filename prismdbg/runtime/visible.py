"""What of this machine a rank may see in namespaces: the system's programs and libraries, and the installations that
the capsule's list names. Not homes, not /var, not /run, nothing of /etc but what every program reads.

The list is the capsule's, so it is held against what is really an installation here: a capsule cannot have other files
shown to its program by calling them installed.
"""

from __future__ import annotations

import os
import pwd
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from prismdbg.errors import CapsuleError
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
# Never taken for an installation as a whole, whatever lies in them.
_TOO_WIDE = frozenset(
    ("/", "/data", "/etc", "/home", "/mnt", "/opt", "/root", "/run", "/srv", "/tmp", "/var", "/var/tmp")
)
_ELF, _CORE = b"\x7fELF", b"\x04\x00"  # a core dump is one, too, and holds a process' memory


@dataclass(frozen=True, slots=True, kw_only=True)
class Visible:
    """folders: with all that is in them; files: one by one; links: where they lie, and where they lead; copies: small
    files that the rank gets its own of."""

    folders: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    links: tuple[tuple[str, str], ...] = ()
    copies: tuple[LaidFile, ...] = ()


NOTHING = Visible()


def visible(environment: Environment | None, python: str, *, laid: Iterable[str] = ()) -> Visible:
    """`python`: the rank's interpreter, by which its installation is found where there is no list. What is `laid` is
    not shown beside. `CapsuleError` for a list that names what is no installed file here."""
    folders: set[str] = set()
    files: set[str] = set()
    links: dict[str, str] = {}
    for file in environment.files if environment is not None else _interpreter(python):
        _sort(file.path, folders, files, links)
    for path in SYSTEM:
        if Path(path).is_symlink():
            links[path] = str(Path(path).readlink())
        elif Path(path).is_dir():
            folders.add(path)
    folders |= {f"/etc/{name}" for name in _ETC_FOLDERS if _is_plain_folder(f"/etc/{name}")}
    return Visible(
        folders=tuple(sorted(folders)),
        files=tuple(sorted(files - set(laid))),
        links=tuple(sorted(links.items())),
        copies=tuple(_copies()),
    )


def require_installed(environment: Environment) -> None:
    """`CapsuleError` naming a file of the list that is no installed file of this machine. It may be missing."""
    for file in environment.files:
        if _is_listed_etc(file.path) or _is_in_system(file.path) or file.target or installation_of(file.path):
            continue
        if os.path.lexists(file.path) and not _is_code(file.path):
            raise not_installed(file.path)


def not_installed(path: str) -> CapsuleError:
    return CapsuleError(
        f"the capsule lists {path} as an installed file, but it is in no installation on this machine",
        hint="fetch the capsule again: this copy was altered",
    )


def installation_of(path: str) -> str:
    """The folder of the interpreter, virtual environment or packages that `path` lies in; empty where it is in none."""
    return _installation_around(path.rpartition("/")[0])


@cache
def _installation_around(folder: str) -> str:
    """The topmost one."""
    if folder in ("", "/"):
        return ""
    if above := _installation_around(str(Path(folder).parent)):
        return above
    return folder if folder not in _TOO_WIDE | _homes() and _is_installation(folder) else ""


def _is_installation(folder: str) -> bool:
    path = Path(folder)
    if path.name in ("site-packages", "dist-packages") or (path / "pyvenv.cfg").is_file():
        return path.is_dir()
    return (path / "conda-meta").is_dir() or (path / "os.py").is_file() or any(path.glob("lib/python3*/os.py"))


@cache
def _homes() -> frozenset[str]:
    return frozenset({user.pw_dir.rstrip("/") for user in pwd.getpwall()} | {str(Path.home())})


def _sort(path: str, folders: set[str], files: set[str], links: dict[str, str]) -> None:
    if _is_in_system(path) or path.startswith("/etc/"):
        return
    if folder := installation_of(path):
        folders.add(folder)
    elif Path(path).is_symlink():
        links[path] = str(Path(path).readlink())
    elif _is_code(path):
        files.add(path)
    elif os.path.lexists(path):
        raise not_installed(path)


def _is_in_system(path: str) -> bool:
    return path.startswith(_SYSTEM)


def _is_listed_etc(path: str) -> bool:
    names = (*_ETC_FILES, *(f"{name}/" for name in _ETC_FOLDERS))
    return any(path == f"/etc/{name}" or (name.endswith("/") and path.startswith(f"/etc/{name}")) for name in names)


def _is_code(path: str) -> bool:
    """A library or program that the rank had mapped, from wherever it was built."""
    try:
        if not Path(path).is_file() or Path(path).is_symlink():
            return False
        with Path(path).open("rb") as file:
            head = file.read(18)
            return head.startswith(_ELF) and head[16:] != _CORE
    except OSError:
        return False


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
    return Path(path).is_dir() and not Path(path).is_symlink()


def _interpreter(python: str) -> list[InstalledFile]:
    """It, and where it leads: a virtual environment's is a link into the base installation."""
    found: list[InstalledFile] = []
    while python and len(found) < 40 and (file := InstalledFile.at(python)) is not None:
        found.append(file)
        if not file.target:
            break
        python = os.path.normpath(Path(python).parent / file.target)
    return found
