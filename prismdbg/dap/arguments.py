"""A client's request and its arguments, each asked for by name and type: what is of another type is an error that the
client is answered with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NoReturn

from prismdbg.errors import UsageError, quoted
from prismdbg.protocol.wire import Message

MAX_OBJECTS = 10_000
MAX_NUMBER = 2**53

Json = dict[str, Any]


class Arguments:
    """`where`: the request, then the path of names."""

    def __init__(self, values: Json, where: str) -> None:
        self._values, self._where = values, where

    def has(self, name: str) -> bool:
        """Whether it is there and not null."""
        return self._values.get(name) is not None

    def text(self, name: str, default: str | None = None) -> str:
        value = self._values.get(name)
        if value is None and default is not None:
            return default
        return value if isinstance(value, str) else self.fail(name, "a text")

    def number(self, name: str, default: int | None = None, *, least: int = 0, most: int = MAX_NUMBER) -> int:
        value = self._values.get(name)
        if value is None and default is not None:
            return default
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
            self.fail(name, f"a whole number from {least} to {most}")
        return value

    def flag(self, name: str, default: bool = False) -> bool:
        value = self._values.get(name)
        if value is None:
            return default
        return value if isinstance(value, bool) else self.fail(name, "true or false")

    def texts(self, name: str) -> tuple[str, ...]:
        values = self._list(name)
        if not all(isinstance(value, str) for value in values):
            self.fail(name, "a list of texts")
        return tuple(values)

    def numbers(self, name: str) -> tuple[int, ...]:
        values = self._list(name)
        if not all(isinstance(value, int) and not isinstance(value, bool) for value in values):
            self.fail(name, "a list of whole numbers")
        return tuple(values)

    def objects(self, name: str) -> tuple[Arguments, ...]:
        """Empty where it is missing."""
        values = self._list(name)
        if not all(isinstance(value, dict) for value in values):
            self.fail(name, "a list of objects")
        return tuple(Arguments(value, f"{self._where}: {name}[{place}]") for place, value in enumerate(values))

    def object(self, name: str) -> Arguments:
        """Without anything in it where it is missing."""
        value = self._values.get(name)
        if value is not None and not isinstance(value, dict):
            self.fail(name, "an object")
        return Arguments(value or {}, f"{self._where}: {name}")

    def fail(self, name: str, wanted: str) -> NoReturn:
        value = self._values.get(name)
        given = "it is missing" if value is None else f"not {quoted(str(value))}"
        raise UsageError(f"{self._where}: {name} must be {wanted}; {given}", hint="report this to the editor's makers")

    def _list(self, name: str) -> list[Any]:
        value = self._values.get(name)
        if value is None:
            return []
        if not isinstance(value, list) or len(value) > MAX_OBJECTS:
            self.fail(name, f"a list of at most {MAX_OBJECTS}")
        return value


@dataclass(frozen=True, slots=True)
class Request:
    seq: int
    command: str
    arguments: Arguments

    @classmethod
    def parse(cls, message: Message) -> Request:
        """`UsageError` for what is none; `of` makes as much of it as an answer needs."""
        command, seq, arguments = message.get("command"), message.get("seq"), message.get("arguments", {})
        if message.get("type") != "request":
            raise UsageError(f"a client sends requests, not a message of the type {quoted(str(message.get('type')))}")
        if not isinstance(command, str) or not isinstance(seq, int) or isinstance(seq, bool):
            raise UsageError("a request needs a `seq`, a whole number, and a `command`, a text")
        if not isinstance(arguments, dict | None):
            raise UsageError(f"{command}: the arguments must be an object")
        return cls(seq, command, Arguments(arguments or {}, command))

    @classmethod
    def unreadable(cls, message: Message) -> Request:
        """What can be said of a message that is no request, for its answer."""
        seq, command = message.get("seq"), message.get("command")
        number = seq if isinstance(seq, int) and not isinstance(seq, bool) else 0
        return cls(number, command if isinstance(command, str) else "", Arguments({}, ""))
