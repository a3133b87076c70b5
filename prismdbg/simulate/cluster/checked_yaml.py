"""A YAML file as typed values. Every complaint names the file, the line and the key."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NoReturn, TypeVar

import yaml

from prismdbg.errors import UsageError
from prismdbg.simulate.cluster.bounded_yaml import BoundedLoader

MAX_BYTES = 256 << 10

T = TypeVar("T")


class Value:
    """One value of the file, with its place. Nothing is converted before it is asked for."""

    def __init__(self, node: yaml.Node, file: str, key: str, name: str = "") -> None:
        self.node, self.file, self.key, self.name = node, file, key, name

    def fail(self, problem: str, hint: str = "") -> NoReturn:
        line = self.node.start_mark.line + 1
        raise UsageError(f"{self.file}, line {line}: {self.key or 'the file'}: {problem}", hint=hint)

    def text(self) -> str:
        if not isinstance(self.node, yaml.ScalarNode):
            self.fail("must be a single value")
        return str(self.node.value)

    def read(self, convert: Callable[[str], T]) -> T:
        """`convert` raises ValueError with what is wrong."""
        try:
            return convert(self.text())
        except ValueError as error:
            self.fail(str(error))

    def named(self, convert: Callable[[str], T]) -> T:
        """Its own name, where that is a quantity. `convert` raises ValueError with what is wrong."""
        try:
            return convert(self.name)
        except ValueError as error:
            self.fail(str(error))

    def whole(self, least: int) -> int:
        text = self.text()
        if not text.isascii() or not text.isdecimal() or len(text) > 18 or int(text) < least:
            self.fail(f"{text[:40]!r} is not a whole number from {least}")
        return int(text)

    def flag(self) -> bool:
        if self.text() not in ("true", "false"):
            self.fail(f"{self.text()[:40]!r} is neither true nor false")
        return self.text() == "true"

    def items(self) -> list[Value]:
        if not isinstance(self.node, yaml.SequenceNode):
            self.fail("must be a list")
        return [Value(node, self.file, f"{self.key}[{i}]") for i, node in enumerate(self.node.value)]

    def fields(self) -> dict[str, Value]:
        if not isinstance(self.node, yaml.MappingNode):
            self.fail("must be a mapping")
        found: dict[str, Value] = {}
        for key, node in self.node.value:
            name = Value(key, self.file, f"a name in {self.key or 'the file'}").text()
            value = Value(node, self.file, f"{self.key}.{name}" if self.key else name, name)
            if name in found:
                value.fail("occurs twice", "leave one")
            found[name] = value
        return found

    def known(self, *names: str) -> dict[str, Value]:
        """The fields, none of which may have another name."""
        fields = self.fields()
        for name, value in fields.items():
            if name not in names:
                value.fail("is not a key of this mapping", f"give one of: {', '.join(names)}")
        return fields

    def required(self, fields: dict[str, Value], name: str) -> Value:
        if name not in fields:
            self.fail(f"{name} is missing", f"add {name}")
        return fields[name]


def read(path: Path, *, example: str) -> Value:
    """example: such a file, for who gave something else."""
    try:
        with path.open("rb") as file:
            text = file.read(MAX_BYTES + 1).decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} cannot be read: {error}", hint=f"give a file like {example}") from error
    return parse(text, str(path), example=example)


def parse(text: str, file: str, *, example: str) -> Value:
    if len(text) > MAX_BYTES:
        raise UsageError(f"{file} is larger than {MAX_BYTES} bytes", hint=f"give a file like {example}")
    try:
        node = BoundedLoader(text).root()
    except yaml.YAMLError as error:
        raise UsageError(f"{file} is not YAML: {str(error)[:300]}", hint=f"give a file like {example}") from error
    if node is None:
        raise UsageError(f"{file} is empty", hint=f"give a file like {example}")
    return Value(node, file, "")
