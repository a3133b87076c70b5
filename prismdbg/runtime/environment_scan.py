"""Finds the installed files that one rank runs on: its interpreter and packages, and the libraries they need.

Not the rank's own files (script, data, modules of its project): those go into the capsule one by one.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Container, Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from prismdbg.capsule import path_kind, rank_path
from prismdbg.runtime import compiler
from prismdbg.runtime.elf import needed_libraries
from prismdbg.runtime.environment import Environment, InstalledFile, of_files

# Prefixes that belong to the whole system: of these only the interpreter's own folders are taken.
_SYSTEM_PREFIXES = frozenset({"/", "/usr", "/usr/local"})
_PACKAGES = ("site-packages", "dist-packages", "lib-dynload")
_VOLATILE = ("/proc/", "/sys/", "/dev/", "/run/", "/memfd:", "/SYSV", "//anon")
# prismdbg itself: a replay brings its own, and another version of it is no other environment.
_OURS = re.compile(r"_?prismdbg(\.pth|_tui|-.*\.dist-info)?|__editable__.*prismdbg.*")
# What libc and Python read behind the scenes, and what `subprocess` with a shell needs.
_ALWAYS = (
    "/etc/ld.so.cache",
    "/etc/passwd",
    "/etc/group",
    "/etc/nsswitch.conf",
    "/etc/localtime",
    "/etc/mime.types",
    "/etc/ssl/openssl.cnf",
    "/etc/ssl/certs/ca-certificates.crt",
    "/usr/lib/locale/locale-archive",
    "/usr/lib/locale/C.utf8/LC_CTYPE",
    "/bin/sh",
    "/bin/uname",
    "/usr/bin/env",
    "/sbin/ldconfig",
)
_ALWAYS_PATTERNS = ("usr/lib*/gconv/gconv-modules.cache", "usr/lib/*/gconv/gconv-modules.cache")


def scan(rank: Mapping[str, Any], pid: int | None = None) -> Environment:
    """`rank` is its rank.json: executable, prefix, base_prefix, sys_path. `pid`: the rank, while it lives."""
    found = _Files()
    matches = [str(path) for pattern in _ALWAYS_PATTERNS for path in Path("/").glob(pattern)]
    for path in (str(rank["executable"]), *_ALWAYS, *matches):
        found.add(path)
    for folder in installed_folders(rank):
        found.add_tree(folder)
    found.add_libraries()
    common = set(found.files)
    for path in mapped_code(pid) if pid is not None else ():
        found.add(path)
    found.add_libraries(common)
    return of_files(found.files.values(), extra=set(found.files) - common)


def with_programs(environment: Environment, programs: Iterable[str]) -> Environment:
    """Also these, which the rank started, of the system's, and what they need: a container has no others."""
    found = _Files()
    found.files = {file.path: file for file in environment.files}
    common = set(found.files)
    real = {program: os.path.realpath(program) for program in programs}
    of_system = {program for program, path in real.items() if path.startswith("/usr/") and InstalledFile.at(path)}
    if not of_system:
        return environment
    for program in sorted(of_system):
        found.add(program)
    for one in sorted(filter(compiler.is_one, {real[program] for program in of_system})):
        compiler.add_parts(one, found.add, found.add_tree)
    found.add_libraries(common)
    return of_files(found.files.values(), extra=environment.extra | (found.files.keys() - common))


def installed_folders(rank: Mapping[str, Any]) -> list[str]:
    """Whole prefixes of interpreters and virtual environments, and package folders outside them."""
    prefixes = {str(rank["prefix"]), str(rank["base_prefix"])}
    paths = [path for path in map(str, rank["sys_path"]) if path.startswith("/")]
    packages = {path for path in paths if _is_installed(path)}
    folders = sorted((prefixes - _SYSTEM_PREFIXES) | packages)
    return [folder for folder in folders if not any(folder.startswith(f"{other}/") for other in folders)]


def mapped_code(pid: int) -> list[str]:
    """Files mapped into the process to be run, and small ones beside (locales). Empty when it has ended."""
    try:
        lines = Path(f"/proc/{pid}/maps").read_text().splitlines()
    except OSError:
        return []
    paths: dict[str, bool] = {}
    for line in lines:
        fields = line.split(maxsplit=5)
        if len(fields) == 6 and fields[5].startswith("/") and not fields[5].endswith(" (deleted)"):
            paths[fields[5]] = paths.get(fields[5], False) or "x" in fields[1]
    return [
        path
        for path, is_code in paths.items()
        if not path.startswith(_VOLATILE) and (is_code or path.startswith("/usr/"))
    ]


def library_path(name: str) -> str | None:
    """Where the loader of this machine finds it."""
    return _library_paths().get(name)


def _is_installed(path: str) -> bool:
    name = Path(path).name
    return name in _PACKAGES or (name.startswith("python3") and path_kind.is_file(f"{path}/os.py"))


class _Files:
    """Collects files; every symbolic link on the way to one is collected too."""

    def __init__(self) -> None:
        self.files: dict[str, InstalledFile] = {}
        self._plain_folders: set[str] = set()

    def add(self, path: str) -> None:
        """Also where it leads if it is a link. What is not there is left out."""
        for _ in range(40):
            path = self._without_links(path)
            file = self.files.get(path) or InstalledFile.at(path)
            if file is None or rank_path.problem(path):
                return
            self.files[path] = file
            if not file.target:
                return
            path = os.path.normpath(Path(path).parent / file.target)

    def add_tree(self, folder: str) -> None:
        """Everything below; links are followed only when they lead to files."""
        for parent, folders, names in os.walk(self._folder(folder)):
            folders[:] = sorted(name for name in folders if name != "__pycache__" and not _OURS.fullmatch(name))
            for name in names:
                if _OURS.fullmatch(name):
                    continue
                if (file := InstalledFile.at(f"{parent}/{name}")) is not None:
                    self.files[file.path] = file
                    if file.target:
                        self.add(file.path)
            for name in list(folders):
                if (link := InstalledFile.at(f"{parent}/{name}")) is not None:  # a link to a folder
                    self.files[link.path] = link

    def add_libraries(self, done: Container[str] = ()) -> None:
        """Libraries that some file outside `done` asks for, and the loader; theirs in turn."""
        known, seen = _library_paths(), set[str]()
        files = [file for file in self.files.values() if file.path not in done]
        waiting = [file.path for file in files if _may_need_libraries(file)]
        while waiting:
            for name in needed_libraries(Path(waiting.pop())):
                if name not in seen and (path := name if name.startswith("/") else known.get(name)):
                    self.add(path)
                    waiting.append(path)
                seen.add(name)

    def _folder(self, path: str) -> str:
        """`path` where it really is, for it may be a link itself, as a virtual environment that several clones use."""
        return self._without_links(f"{path}/.").removesuffix("/.")

    def _without_links(self, path: str) -> str:
        """`path` with every folder on the way resolved, each link on the way collected."""
        done = ""
        parts = [part for part in path.split("/") if part]
        while len(parts) > 1:
            step = f"{done}/{parts.pop(0)}"
            link = None if step in self._plain_folders else InstalledFile.at(step)
            if link is None or not link.target:
                self._plain_folders.add(step)
                done = step
                continue
            if not rank_path.problem(step):  # /proc/self, say: of another process where the list is used
                self.files[step] = link
            target = os.path.normpath(Path(done or "/") / link.target)
            parts = [part for part in target.split("/") if part] + parts
            done = ""
        return f"{done}/{parts[0]}" if parts else "/"


def _may_need_libraries(file: InstalledFile) -> bool:
    name = file.path.rpartition("/")[2]
    return not file.target and (".so" in name or bool(file.mode & 0o100))


@cache
def _library_paths() -> dict[str, str]:
    """What the loader's cache says: library name -> path, the first of each name."""
    ran = subprocess.run(
        ["/sbin/ldconfig", "-p"], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=30, check=False
    )
    return dict(reversed(list(_cache_lines(ran.stdout.splitlines()))))


def _cache_lines(lines: Iterable[str]) -> Iterator[tuple[str, str]]:
    for line in lines:
        name, arrow, path = line.strip().partition(" => ")
        if arrow and "i386" not in name and "libc6,x32" not in name:
            yield name.split()[0], path
