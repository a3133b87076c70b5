"""A large JSON file, plain or gzip, value by value: memory holds one value and never the file.

Traces are written by programs that care little for the standard, so control characters in texts and NaN are let through
here; what a reader takes out of a value it checks by type.
"""

from __future__ import annotations

import gzip
import json
import os
import re
import stat
import zlib
from codecs import getincrementaldecoder
from collections.abc import Container, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, NoReturn

from prismdbg.errors import CapsuleError

MAX_FILE_BYTES = 4 << 30  # unpacked
MAX_VALUE_CHARS = 4 << 20  # one value of an array; a whole member outside of the arrays
MOST_VALUES = 20_000_000
_CHUNK_BYTES = 1 << 20
_GZIP = b"\x1f\x8b"
_SPACE = re.compile(r"[ \t\n\r]*")
_DAMAGED = "fetch the file again: it is damaged, or it was not written by the tool that its name says"


def head(path: Path, size_bytes: int) -> bytes:
    """The first bytes of a file, unpacked; empty if it is no regular file or cannot be read."""
    try:
        with opened(path) as file:
            return file.read(size_bytes)
    except (CapsuleError, OSError, EOFError, zlib.error):
        return b""


def members(path: Path, arrays: Container[str]) -> Iterator[tuple[str, Any]]:
    """The fields of the object in the file, as they come; for a field in `arrays` each item of its list by itself.
    Raises `CapsuleError` for what is damaged, too large, or no JSON object."""
    try:
        with opened(path) as file:
            yield from _Reader(file, str(path)).members(arrays)
    except (OSError, EOFError, zlib.error) as error:
        raise CapsuleError(f"{path} cannot be read: {error}", hint=_DAMAGED) from None


@contextmanager
def opened(path: Path) -> Iterator[BinaryIO]:
    """A pipe, a device or a link is never opened."""
    if not stat.S_ISREG(path.lstat().st_mode):
        raise CapsuleError(f"{path} is not a regular file", hint=_DAMAGED)
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
        is_packed = file.read(len(_GZIP)) == _GZIP
        file.seek(0)
        if is_packed:
            with gzip.open(file) as unpacked:
                yield unpacked  # type: ignore[misc]
        else:
            yield file


class _Reader:
    def __init__(self, file: BinaryIO, where: str) -> None:
        self._file = file
        self._where = where
        self._decode = getincrementaldecoder("utf-8")("replace").decode
        self._json = json.JSONDecoder(strict=False)
        self._text = ""
        self._at = 0
        self._bytes = 0
        self._values = 0
        self._is_whole = False

    def members(self, arrays: Container[str]) -> Iterator[tuple[str, Any]]:
        self._expect("{")
        if self._next() == "}":
            return
        while True:
            name = self._value()
            if not isinstance(name, str):
                self._refuse("has a field whose name is not a text")
            self._expect(":")
            if name in arrays and self._next() == "[":
                yield from ((name, item) for item in self._items())
            else:
                yield name, self._value()
            if self._expect(",}") == "}":
                return

    def _items(self) -> Iterator[Any]:
        self._expect("[")
        if self._next() == "]":
            self._at += 1
            return
        while True:
            yield self._value()
            if self._expect(",]") == "]":
                return

    def _next(self) -> str:
        """The next character that is no space, which stays the next; empty at the end of the file."""
        while True:
            found = _SPACE.match(self._text, self._at)
            self._at = found.end() if found else self._at
            if self._at < len(self._text):
                return self._text[self._at]
            if not self._more():
                return ""

    def _expect(self, wanted: str) -> str:
        found = self._next()
        if not found or found not in wanted:
            what = f"{found!r} instead of" if found else "its end before"
            self._refuse(f"is not JSON: {what} {' or '.join(wanted)}")
        self._at += 1
        return found

    def _value(self) -> Any:
        self._values += 1
        if self._values > MOST_VALUES:
            self._refuse(f"has more than {MOST_VALUES} values", "record fewer steps")
        self._next()
        while True:
            try:
                value, end = self._json.raw_decode(self._text, self._at)
            except (ValueError, RecursionError) as error:
                problem = str(error)[:200]
            else:
                if end < len(self._text) or not self._more():  # a number may go on
                    self._at = end
                    return value
                continue
            if len(self._text) - self._at > MAX_VALUE_CHARS or not self._more():
                self._refuse(f"is not JSON, or has a value of more than {MAX_VALUE_CHARS >> 20} MiB: {problem}")

    def _more(self) -> bool:
        """Whether there was more to read."""
        if self._is_whole:
            return False
        data = self._file.read(_CHUNK_BYTES)
        self._bytes += len(data)
        self._is_whole = not data
        if self._bytes > MAX_FILE_BYTES:
            self._refuse(f"is larger than {MAX_FILE_BYTES >> 30} GiB", "record fewer steps")
        self._text = self._text[self._at :] + self._decode(data, not data)
        self._at = 0
        return bool(data)

    def _refuse(self, problem: str, hint: str = _DAMAGED) -> NoReturn:
        raise CapsuleError(f"{self._where} {problem}", hint=hint)
