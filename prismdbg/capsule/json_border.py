"""The border where JSON from a file becomes typed values: every field is asked for by name and type, once.

What it reads may be hostile: whatever is wrong becomes one `CapsuleError` that names the file and the field.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from prismdbg.errors import CapsuleError, UsageError
from prismdbg.model.moment import Moment

MAX_JSON_BYTES = 256 << 20

T = TypeVar("T")


class Fields:
    """One JSON object. `where` is said in errors: the file, then the path of fields."""

    def __init__(self, value: object, where: str) -> None:
        self.where = where
        if not isinstance(value, dict):
            raise CapsuleError(f"{where}: wanted an object, got {type(value).__name__}")
        self.value: dict[str, Any] = value
        self._asked: set[str] = set()

    def fail(self, name: str, problem: str) -> NoReturn:
        raise CapsuleError(f"{self.where}: {name} {problem}", hint="the file was altered, or another program wrote it")

    def has(self, name: str) -> bool:
        """Whether it is there and not null."""
        self._asked.add(name)
        return self.value.get(name) is not None

    def text(self, name: str) -> str:
        return self._checked(name, _text, "a text")

    def integer(self, name: str, *, least: int = 0, most: int = 2**63 - 1) -> int:
        number = self._checked(name, _integer, "a whole number")
        if not least <= number <= most:
            self.fail(name, f"is {number}, not between {least} and {most}")
        return number

    def number(self, name: str) -> float:
        return self._checked(name, _number, "a number")

    def boolean(self, name: str) -> bool:
        return self._checked(name, lambda value: value if isinstance(value, bool) else None, "true or false")

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
        return self._each(name, _text, "a text")

    def integers(self, name: str) -> tuple[int, ...]:
        return self._each(name, _integer, "a whole number")

    def text_map(self, name: str) -> dict[str, str]:
        pairs = {key: _text(value) for key, value in self._dict(name).items()}
        for key, value in pairs.items():
            if value is None or _text(key) is None:
                self.fail(f"{name}.{key!r}", "must be a text")
        return {key: value for key, value in pairs.items() if value is not None}

    def objects(self, name: str) -> list[Fields]:
        return [Fields(value, f"{self.where}: {name}[{i}]") for i, value in enumerate(self._list(name))]

    def object_map(self, name: str) -> dict[str, Fields]:
        return {key: Fields(value, f"{self.where}: {name}[{key!r}]") for key, value in self._dict(name).items()}

    def fields(self, name: str) -> Fields:
        return Fields(self._get(name), f"{self.where}: {name}")

    def refuse_others(self) -> None:
        """No field may be there that was not asked for."""
        for name in self.value.keys() - self._asked:
            self.fail(repr(name), "is a field this format does not have")

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
                self.fail(name, f"must hold nothing but {wanted} each")
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


def _text(value: object) -> str | None:
    """Surrogates may only be what Python makes of a path that is no UTF-8."""
    if not isinstance(value, str):
        return None
    try:
        value.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return None
    return value


def _integer(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return float(value)


def parse(data: bytes, where: str) -> Fields:
    """The object that the JSON text `data` holds."""
    return Fields(_loads(data, where), where)


def read(path: Path, *, limit_bytes: int = MAX_JSON_BYTES) -> Fields:
    """The object in a JSON file. `CapsuleError` where it is missing, too large, a link or no JSON."""
    return parse(read_bytes(path, limit_bytes=limit_bytes), str(path))


def read_bytes(path: Path, *, limit_bytes: int = MAX_JSON_BYTES) -> bytes:
    if path.is_symlink() or not path.is_file():
        raise CapsuleError(f"{path} is missing or not a plain file", hint="the capsule is incomplete or altered")
    try:
        with path.open("rb") as file:
            data = file.read(limit_bytes + 1)
    except OSError as error:
        raise CapsuleError(f"{path} cannot be read: {error.strerror}") from error
    if len(data) > limit_bytes:
        raise CapsuleError(f"{path} is larger than {limit_bytes} bytes", hint="the capsule was altered")
    return data


def dumps(value: object) -> bytes:
    """JSON as it is written into a capsule: for people to read, the same bytes for the same value."""
    return (json.dumps(value, indent=1, sort_keys=True, allow_nan=False) + "\n").encode()


def _loads(data: bytes, where: str) -> object:
    try:
        return json.loads(data, object_pairs_hook=_no_duplicates)
    except (ValueError, RecursionError) as error:
        raise CapsuleError(f"{where} is not JSON: {str(error)[:200]}", hint="the file is damaged") from error


def _no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        raise ValueError("a field stands there twice")
    return value
