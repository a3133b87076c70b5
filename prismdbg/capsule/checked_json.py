"""JSON from a file as typed values: every field is asked for by name and type, once.

What it reads may be hostile: whatever is wrong becomes one `CapsuleError` that names the file and the field.
"""

from __future__ import annotations

import errno
import json
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from prismdbg.capsule.limits import MAX_JSON_BYTES, MAX_RANKS
from prismdbg.errors import CapsuleError, UsageError
from prismdbg.model import shapes
from prismdbg.model.moment import Moment
from prismdbg.model.shapes import Count as Count
from prismdbg.model.shapes import MomentText as MomentText
from prismdbg.model.shapes import Word as Word
from prismdbg.model.shapes import at_most as at_most
from prismdbg.model.shapes import between as between

_ALTERED = "capture or fetch it again: the file is damaged or was altered"
_LARGEST = 2**63 - 1

T = TypeVar("T")


class Fields:
    """One JSON object. `where` is said in errors: the file, then the path of fields."""

    def __init__(self, value: object, where: str) -> None:
        self.where = where
        if not isinstance(value, dict):
            _refuse(where, f"must be an object, not {type(value).__name__}")
        self.value: dict[str, Any] = value
        self._asked: set[str] = set()

    def fail(self, name: str, problem: str) -> NoReturn:
        _refuse(f"{self.where}: {name}", problem)

    def has(self, name: str) -> bool:
        """Whether it is there and not null."""
        self._asked.add(name)
        return self.value.get(name) is not None

    def text(self, name: str) -> str:
        return self._checked(name, shapes.text, "a string")

    def integer(self, name: str, *, least: int = 0, most: int = _LARGEST) -> int:
        number = self._checked(name, shapes.integer, "a whole number of 64 bits")
        if not least <= number <= most:
            self.fail(name, f"is {number}, not between {least} and {most}")
        return number

    def number(self, name: str) -> float:
        return self._checked(name, shapes.number, "a number")

    def boolean(self, name: str) -> bool:
        return self._checked(name, shapes.boolean, "true or false")

    def moment(self, name: str) -> Moment:
        text = self.text(name)
        try:
            return Moment.parse(text)
        except (UsageError, ValueError):
            self.fail(name, f"is {text[:40]!r}, not a moment")

    def sha256(self, name: str) -> str:
        text = self.text(name)
        if len(text) != 64 or not set(text) <= set("0123456789abcdef"):
            self.fail(name, "is not a sha256 in hexadecimal")
        return text

    def texts(self, name: str) -> tuple[str, ...]:
        return self._each(name, shapes.text, "a string")

    def integers(self, name: str) -> tuple[int, ...]:
        return self._each(name, shapes.integer, "a whole number of 64 bits")

    def ranks(self, name: str) -> tuple[int, ...]:
        """Of a group, each once."""
        ranks = self.integers(name)
        if ranks and not 0 <= min(ranks) <= max(ranks) < MAX_RANKS:
            self.fail(name, f"contains an invalid rank: ranks go from 0 to {MAX_RANKS - 1}")
        if len(set(ranks)) < len(ranks):
            self.fail(name, "contains a rank twice")
        return ranks

    def text_map(self, name: str) -> dict[str, str]:
        pairs = {key: shapes.text(value) for key, value in self._dict(name).items()}
        for key, value in pairs.items():
            if value is None or shapes.text(key) is None:
                self.fail(f"{name}.{key!r}", "must be a string")
        return {key: value for key, value in pairs.items() if value is not None}

    def checked(self, name: str, kind: type[T]) -> T:
        return checked(kind, self._get(name), f"{self.where}: {name}")

    def objects(self, name: str) -> list[Fields]:
        return [Fields(value, f"{self.where}: {name}[{i}]") for i, value in enumerate(self._list(name))]

    def object_map(self, name: str) -> dict[str, Fields]:
        return {key: Fields(value, f"{self.where}: {name}[{key!r}]") for key, value in self._dict(name).items()}

    def fields(self, name: str) -> Fields:
        return Fields(self._get(name), f"{self.where}: {name}")

    def require_at_most(self, most: int, name: str) -> None:
        """Of a list or an object, before any of its entries is read."""
        value = self._get(name)
        if isinstance(value, list | dict) and len(value) > most:
            self.fail(name, f"contains {len(value):,} entries; the limit is {most:,}")

    def refuse_others(self) -> None:
        """No field may be there that was not asked for."""
        for name in self.value.keys() - self._asked:
            self.fail(repr(name), "is not a field of this format")

    def _get(self, name: str) -> Any:
        self._asked.add(name)
        if name not in self.value:
            self.fail(name, "is missing")
        return self.value[name]

    def _checked(self, name: str, convert: Callable[[object], T | None], wanted: str) -> T:
        value = convert(self._get(name))
        if value is None:
            self.fail(name, f"must be {wanted}")
        return value

    def _each(self, name: str, convert: Callable[[object], T | None], wanted: str) -> tuple[T, ...]:
        values: list[T] = []
        for item in self._list(name):
            value = convert(item)
            if value is None:
                self.fail(name, f"must contain only {wanted} for each key")
            values.append(value)
        return tuple(values)

    def _list(self, name: str) -> list[Any]:
        value = self._get(name)
        if not isinstance(value, list):
            self.fail(name, "must be a list")
        return value

    def _dict(self, name: str) -> dict[str, Any]:
        value = self._get(name)
        if not isinstance(value, dict):
            self.fail(name, "must be an object")
        return value


def checked(kind: type[T], value: object, where: str) -> T:
    """`value` itself where it is what the typed dict `kind` says; fields that `kind` does not have are passed over.

    `CapsuleError` names the field. A rule in `Annotated[type, rule]` takes the value and gives what is wrong with it.
    """
    try:
        shapes.check(kind, value, where)
    except shapes.ShapeError as error:
        _refuse(error.where, error.problem)
    return value  # type: ignore[return-value]


def _refuse(where: str, problem: str) -> NoReturn:
    raise CapsuleError(f"{where} {problem}", hint=_ALTERED)


def parse(data: bytes, where: str, *, any_float: bool = False) -> Fields:
    """The object that the JSON text `data` holds. `any_float`: NaN and the infinities are numbers, too."""
    return Fields(_loads(data, where, None if any_float else _no_constant), where)


def read(path: Path, *, limit_bytes: int = MAX_JSON_BYTES) -> Fields:
    """The object in a JSON file. `CapsuleError` where it is missing, too large, a link or no JSON."""
    return parse(read_bytes(path, limit_bytes=limit_bytes), str(path))


def read_bytes(path: Path, *, limit_bytes: int = MAX_JSON_BYTES) -> bytes:
    """`CapsuleError` for what is missing, too large, or no plain file: a pipe, a device or a link is never opened."""
    try:
        if not stat.S_ISREG(path.lstat().st_mode):
            raise CapsuleError(f"{path} is not a regular file", hint=_ALTERED)
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
            data = file.read(limit_bytes + 1)
    except OSError as error:
        if error.errno == errno.ENOENT:
            raise CapsuleError(
                f"{path} is missing", hint="capture the rank again, or fetch the capsule again"
            ) from None
        raise CapsuleError(f"{path} cannot be read: {error.strerror}", hint=_ALTERED) from error
    if len(data) > limit_bytes:
        raise CapsuleError(f"{path} is larger than {limit_bytes >> 20} MiB", hint=_ALTERED)
    return data


def dumps(value: object, *, indent: int | None = 1) -> bytes:
    """JSON as it is written into a capsule: for people to read, the same bytes for the same value. `indent`: None for
    what is long and nobody reads, which takes a quarter of the time."""
    return (json.dumps(value, indent=indent, sort_keys=True, allow_nan=False) + "\n").encode()


def _loads(data: bytes, where: str, constant: Callable[[str], object] | None) -> object:
    try:
        return json.loads(data, object_pairs_hook=_no_duplicates, parse_constant=constant)
    except (ValueError, RecursionError) as error:
        raise CapsuleError(f"{where} is not JSON: {str(error)[:200]}", hint=_ALTERED) from error


def _no_constant(text: str) -> NoReturn:
    raise ValueError(f"{text} is not a number")


def _no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        raise ValueError("a field occurs twice")
    return value
