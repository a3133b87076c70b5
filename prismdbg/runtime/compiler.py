"""What a compiler of the system consists of: the programs that it starts, headers, and what it links.

A program under torch.compile starts one, and so do others that make code for the processor that they run on.
"""

from __future__ import annotations

import os
import re
import stat
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

from prismdbg.capsule import path_kind

_NAMES = re.compile(r"(.*-)?(gcc|g\+\+|cc|c\+\+|clang|clang\+\+)(-[0-9.]+)?")
_ADMINISTRATORS = (0,)
_BOUND_S = 30
_ITS_COMPILER = "-print-prog-name=cc1"  # its folder, which may be another, has what the linker loads
_PROGRAMS = ("cc1", "cc1plus", "as", "ld", "collect2")
# What a program or a library with threads and OpenMP is linked with (libc.so and others name files in their text).
_LINKED = (
    *("crt1.o", "Scrt1.o", "crti.o", "crtn.o"),
    *("libc.so", "libc.so.6", "libc_nonshared.a", "libm.so", "libm.so.6", "libmvec.so", "libmvec.so.1"),
    *("libdl.a", "libpthread.a", "librt.a", "libgcc_s.so.1", "libgomp.so", "libgomp.so.1", "libstdc++.so.6"),
)


def is_one(path: str) -> bool:
    """By its name, and one that only the system's administrator can have put there: it is run to be asked."""
    return bool(_NAMES.fullmatch(Path(path).name)) and all(map(_is_administrators, (Path(path), *Path(path).parents)))


def _is_administrators(path: Path) -> bool:
    status = path.stat()
    is_shared = stat.S_ISDIR(status.st_mode) and bool(
        status.st_mode & stat.S_ISVTX
    )  # as /tmp: nobody renames another's
    return status.st_uid in _ADMINISTRATORS and (is_shared or not status.st_mode & 0o022)


def add_parts(path: str, add: Callable[[str], None], add_tree: Callable[[str], None]) -> None:
    """Of files, and of folders all that is in them."""
    for found in (*_programs(path), *_linked(path)):
        add(found)
    own = {_said(path, option).strip().rpartition("/")[0] for option in ("-print-libgcc-file-name", _ITS_COMPILER)}
    for folder in (*sorted(own), *_header_folders(path)):
        if folder.startswith("/usr/") and path_kind.is_folder(folder):
            add_tree(os.path.normpath(folder))


def _programs(path: str) -> Iterator[str]:
    """A bare name is looked for as the compiler does."""
    for name in _PROGRAMS:
        said = _said(path, f"-print-prog-name={name}").strip()
        yield said if "/" in said else f"/usr/bin/{name}"


def _linked(path: str) -> Iterator[str]:
    for name in _LINKED:
        if "/" in (said := _said(path, f"-print-file-name={name}").strip()):
            yield os.path.normpath(said)


def _header_folders(path: str) -> Iterator[str]:
    for language in ("c", "c++"):  # a compiler may have one of them alone
        said = _said(path, "-E", "-v", "-x", language, "/dev/null")
        listed = said.partition("#include <...> search starts here:\n")[2]
        for line in listed.partition("End of search list.")[0].splitlines():
            yield line.strip()


def _said(path: str, *options: str) -> str:
    """Empty where it does not answer: a capture is not lost for it."""
    try:
        ran = subprocess.run(
            [path, *options],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            env={"PATH": "/usr/bin:/bin", "LC_ALL": "C"},
            cwd="/",
            timeout=_BOUND_S,
            check=False,
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return ran.stdout
