"""In a replay: variables that looked like a secret and files of credentials are not in the capsule. Reading one says so
by name.

Of a replay from the start it is installed before the program's first import. What the program itself sets or writes is
its own again.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable
from typing import Any

from prismdbg.errors import PrismError
from prismdbg.settings.redaction import REDACTED_FILES, REDACTED_NAMES
from prismdbg.settings.trackers import STAND_INS

_WRITES = os.O_WRONLY | os.O_RDWR


class RedactedVariable(PrismError):
    """No KeyError: `os.environ.get` would answer with its default, and the program take another way than it did."""


class RedactedFile(PrismError):
    """No OSError: a program that does without the file would take another way than it did."""


_names: set[str] = set()
_files: set[str] = set()


class _Environ(type(os.environ)):  # type: ignore[misc]
    """The class of os.environ and os.environb while names are missing from them."""

    def __getitem__(self, key: Any) -> Any:
        if _name(key) in _names:
            raise RedactedVariable(
                f"the environment variable {_name(key)} is not in this capsule: it may be a secret",
                hint="set the variable in the program, or change the program so that it does not read it",
            )
        return super().__getitem__(key)

    def __contains__(self, key: object) -> bool:
        return _name(key) in _names or super().__contains__(key)

    def __setitem__(self, key: Any, value: Any) -> None:
        _names.discard(_name(key))
        super().__setitem__(key, value)

    def __delitem__(self, key: Any) -> None:
        if _name(key) in _names:
            _names.discard(_name(key))
        else:
            super().__delitem__(key)


def install(names: Iterable[str]) -> None:
    _names.update(names)
    for environ in (os.environ, os.environb):
        environ.__class__ = _Environ  # the object stays: others hold it


def install_files(paths: Iterable[str]) -> None:
    """Opening one of these files for reading raises; what native code opens is empty."""
    wanted = set(paths)
    if wanted and not _files:
        sys.addaudithook(_refuse)
    _files.update(wanted)


def install_from(environ: dict[str, str]) -> None:
    """What `sitecustomize` was told of."""
    if names := environ.get(REDACTED_NAMES, ""):
        install(names.split(","))
        os.environ |= {name: STAND_INS[name] for name in STAND_INS.keys() & _names}
    if files := environ.get(REDACTED_FILES, ""):
        install_files(json.loads(files))


def _refuse(event: str, arguments: tuple[Any, ...]) -> None:
    if event != "open" or not isinstance(arguments[0], str | bytes):
        return
    path = os.path.abspath(os.fsdecode(arguments[0]))
    if path not in _files and (path := os.path.realpath(path)) not in _files:
        return
    if isinstance(flags := arguments[2], int) and flags & _WRITES:
        _files.discard(path)
        return
    raise RedactedFile(
        f"{path} is not in this capsule: it contains credentials. Provide your own: --with-file {path}",
        hint=f"replay with --with-file {path}, or --with-file {path}=ANOTHER",
    )


def _name(key: object) -> str:
    return os.fsdecode(key) if isinstance(key, bytes) else str(key)
