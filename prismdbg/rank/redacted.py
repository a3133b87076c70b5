"""In a replay from the start: a variable that looked like a secret is not in the capsule. Reading it says so by name.

Installed before the program's first import. What the program itself sets is its own again.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

from prismdbg.errors import PrismError

REDACTED_NAMES = "PRISMDBG_REDACTED"  # for `sitecustomize`, separated by commas


class RedactedVariable(PrismError):
    """No KeyError: `os.environ.get` would answer with its default, and the program take another way than it did."""


_names: set[str] = set()


class _Environ(type(os.environ)):  # type: ignore[misc]
    """The class of os.environ and os.environb while names are missing from them."""

    def __getitem__(self, key: Any) -> Any:
        if _name(key) in _names:
            raise RedactedVariable(
                f"the environment variable {_name(key)} is not in this capsule: it looked like a secret",
                hint="let the program set it, or do without it",
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


def _name(key: object) -> str:
    return os.fsdecode(key) if isinstance(key, bytes) else str(key)
