"""A script's text into its values, strictly: what is not in the language is refused, with the place, before anything
starts. Which keys there are and what they take is read from the classes of `language`."""

from __future__ import annotations

import dataclasses
import difflib
import math
import re
import types
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin, get_type_hints

import yaml

from prismdbg.errors import UsageError
from prismdbg.expr.parser import Expression, parse
from prismdbg.expr.place import ExpressionError
from prismdbg.model.moment import Moment
from prismdbg.script import checks, language
from prismdbg.script.language import END, Count, Name, Script, Seconds, SourceLine, When
from prismdbg.script.nodes import MAX_SCRIPT_BYTES, Source
from prismdbg.script.place import Place

MAX_ENTRIES = 1000
_TAG = "tag:yaml.org,2002:"
_NAME = re.compile(r"[^\W\d_][\w .-]{0,79}")
_SOURCE_LINE = re.compile(r"([^\s:]+):([1-9][0-9]{0,6})")
_KINDS = {yaml.MappingNode: "a mapping", yaml.SequenceNode: "a list", yaml.ScalarNode: "a single value"}
_SCHEMA_HINT = "run `prismdbg replay --script-schema` for the complete language"

T = TypeVar("T")


def read_file(path: Path) -> Script:
    try:
        with path.open("rb") as file:
            data = file.read(MAX_SCRIPT_BYTES + 1)
    except OSError as error:
        raise UsageError(f"the script {path} cannot be read: {error.strerror}", hint="check the path") from None
    return read(data, str(path))


def read(data: bytes, name: str) -> Script:
    """`UsageError` says file, line and column of the first thing that is wrong."""
    source = Source(name, data)
    script = _Reader(source).record(Script, source.compose())
    checks.check(script)
    return script


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """One key of one kind of entry. `field`: what Python calls it."""

    field: str
    wanted: Any
    meaning: str
    default: Any

    @property
    def is_required(self) -> bool:
        return self.default is dataclasses.MISSING


def keys(kind: Any) -> dict[str, Key]:
    hints = get_type_hints(kind, include_extras=True)
    found = {}
    for field in dataclasses.fields(kind):
        if get_origin(hints[field.name]) is Annotated:
            wanted, meaning = get_args(hints[field.name])
            name = language.CALLED.get(field.name, field.name)
            found[name] = Key(field=field.name, wanted=wanted, meaning=meaning, default=field.default)
    return found


class _Reader:
    def __init__(self, source: Source) -> None:
        self._source = source
        self._scalars: dict[Any, Callable[[yaml.ScalarNode], Any]] = {
            str: self._text,
            bool: self._flag,
            Count: self._count,
            Seconds: self._seconds,
            Moment: self._moment,
            Expression: self._expression,
            Name: self._name,
            SourceLine: self._source_line,
            When: self._when,
        }

    def record(self, kind: type[T], node: yaml.Node) -> T:
        if not isinstance(node, yaml.MappingNode):
            raise self._unlike(node, f"a mapping with the keys {', '.join(keys(kind))}")
        given: dict[str, Any] = {"place": self._source.of(node)}
        for key_node, value_node in node.value:
            name = self._key(kind, key_node)
            key = keys(kind)[name]
            if key.field in given:
                raise self._at(key_node).complaint(f"{name!r} is given twice")
            given[key.field] = self._value(key.wanted, value_node)
        self._require_all(kind, given, node)
        return kind(**given)

    def _key(self, kind: type, node: yaml.Node) -> str:
        name = node.value if isinstance(node, yaml.ScalarNode) else None
        if name in keys(kind):
            return str(name)
        known = list(keys(kind))
        near = difflib.get_close_matches(str(name), known, 1) if name is not None else []
        hint = f"did you mean {near[0]!r}?" if near else f"keys here: {', '.join(known)}"
        raise self._at(node).complaint(f"unknown key {name!r} here" if name else "a key is a word", hint=hint)

    def _require_all(self, kind: type, given: dict[str, Any], node: yaml.Node) -> None:
        for name, key in keys(kind).items():
            if key.field not in given and key.is_required:
                raise self._at(node).complaint(f"the key {name!r} is missing here", hint=_SCHEMA_HINT)

    def _value(self, wanted: Any, node: yaml.Node) -> Any:
        if get_origin(wanted) in (types.UnionType, Union):
            wanted = next(kind for kind in get_args(wanted) if kind is not type(None))
        if get_origin(wanted) is tuple:
            return self._list(get_args(wanted)[0], node)
        if wanted in self._scalars:
            return self._scalars[wanted](self._single(node))
        if issubclass(wanted, StrEnum):
            return self._choice(wanted, self._single(node))
        return self.record(wanted, node)

    def _list(self, wanted: Any, node: yaml.Node) -> tuple[Any, ...]:
        if not isinstance(node, yaml.SequenceNode):
            raise self._unlike(node, "a list (each entry after a dash)")
        if len(node.value) > MAX_ENTRIES:
            raise self._at(node).complaint(f"a list has at most {MAX_ENTRIES} entries")
        return tuple(self._value(wanted, item) for item in node.value)

    def _single(self, node: yaml.Node) -> yaml.ScalarNode:
        if not isinstance(node, yaml.ScalarNode):
            raise self._unlike(node, "a single value", "put a text that begins with [ or { in quotes")
        if node.tag == _TAG + "null" and not node.style:
            raise self._at(node).complaint("a value is missing here")
        return node

    def _choice(self, kind: type[StrEnum], node: yaml.ScalarNode) -> StrEnum:
        if node.value not in tuple(kind):
            raise self._at(node).complaint(f"{node.value!r} is not one of {', '.join(kind)}")
        return kind(node.value)

    def _text(self, node: yaml.ScalarNode) -> str:
        if node.tag != _TAG + "str":
            raise self._at(node).complaint(
                f"expected a text, but YAML reads {node.value!r} as another type", hint="put it in quotes"
            )
        if not node.value.strip():
            raise self._at(node).complaint("the text is empty")
        return str(node.value)

    def _flag(self, node: yaml.ScalarNode) -> bool:
        if node.tag != _TAG + "bool" or node.value not in ("true", "false"):
            raise self._at(node).complaint(f"expected true or false, not {node.value!r}")
        return bool(node.value == "true")

    def _count(self, node: yaml.ScalarNode) -> Count:
        if not re.fullmatch("0|[1-9][0-9]{0,17}", node.value) or node.style:
            raise self._at(node).complaint(f"expected a whole number from 0, not {node.value!r}")
        return Count(int(node.value))

    def _seconds(self, node: yaml.ScalarNode) -> Seconds:
        number = float(node.value) if re.fullmatch(r"[0-9]+(\.[0-9]+)?", node.value) and not node.style else math.nan
        if not 0 < number <= language.MAX_SECONDS:
            raise self._at(node).complaint(
                f"expected a number of seconds, above 0 and up to a week, not {node.value!r}"
            )
        return Seconds(number)

    def _moment(self, node: yaml.ScalarNode) -> Moment:
        """Whatever YAML takes it for: 12.10 is a moment, not a number. A step is its first collective."""
        try:
            moment = Moment.parse(node.value)
            return moment if moment.collective or moment.op else Moment(moment.step, 1)
        except UsageError as error:
            raise self._at(node).complaint(str(error), hint=error.hint) from None

    def _expression(self, node: yaml.ScalarNode) -> Expression:
        try:
            return parse(node.value)
        except ExpressionError as error:
            place = self._inside(node, error.column)
            raise place.complaint(error.bare if place.text else str(error), hint=error.hint) from None

    def _name(self, node: yaml.ScalarNode) -> Name:
        if not _NAME.fullmatch(node.value) or node.value == END:
            raise self._at(node).complaint(
                f"{node.value!r} is not a name", hint=f"begin it with a letter, and do not use {END!r}"
            )
        return Name(node.value)

    def _source_line(self, node: yaml.ScalarNode) -> SourceLine:
        match = _SOURCE_LINE.fullmatch(node.value)
        if match is None:
            raise self._at(node).complaint(f"{node.value!r} is not a line of a program", hint="write train.py:61")
        return SourceLine(match[1], int(match[2]))

    def _when(self, node: yaml.ScalarNode) -> When:
        if node.value == END:
            return When(END, None, self._at(node))
        if node.value[:1].isdigit():
            return When(node.value, self._moment(node), self._at(node))
        return When(self._name(node).text, None, self._at(node))

    def _inside(self, node: yaml.ScalarNode, column: int) -> Place:
        """The character `column` of a value. Where it is folded or has escapes, the value's beginning."""
        begin, end = node.start_mark, node.end_mark
        quotes = 1 if node.style else 0
        if begin.line == end.line and end.column - begin.column == len(node.value) + 2 * quotes:
            return self._at(node).behind(quotes + column)
        return Place(self._source.file, begin.line, begin.column)

    def _at(self, node: yaml.Node) -> Place:
        return self._source.of(node)

    def _unlike(self, node: yaml.Node, wanted: str, hint: str = _SCHEMA_HINT) -> UsageError:
        if isinstance(node, yaml.ScalarNode) and node.tag == _TAG + "null":
            return self._at(node).complaint(f"a value is missing here; expected {wanted}", hint=hint)
        return self._at(node).complaint(f"expected {wanted}, found {_KINDS[type(node)]}", hint=hint)
