"""JSON values from elsewhere against the typed dicts that say what they must be: the one check that every reader calls.

A reader calls `check` once; after it the value has that type. The reader decides which error a `ShapeError` becomes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sized
from functools import cache, partial
from types import NoneType
from typing import Annotated, Any, NotRequired, get_args, get_origin, get_type_hints, is_typeddict

from prismdbg.errors import UsageError
from prismdbg.model.moment import Moment

_LARGEST = 2**63 - 1


class ShapeError(Exception):
    """`where`: the path of fields; `problem`: what is wrong there."""

    def __init__(self, where: str, problem: str) -> None:
        super().__init__(f"{where} {problem}")
        self.where = where
        self.problem = problem

    def below(self, where: str) -> ShapeError:
        return ShapeError(where + self.where, self.problem)


def text(value: object) -> str | None:
    """Surrogates may only be what Python makes of a path that is no UTF-8."""
    if not isinstance(value, str):
        return None
    try:
        value.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return None
    return value


def integer(value: object) -> int | None:
    """Of 64 bits, as every number that prismdbg writes is."""
    known = isinstance(value, int) and not isinstance(value, bool) and -_LARGEST <= value <= _LARGEST
    return value if known and isinstance(value, int) else None


def number(value: object) -> float | None:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return None if (whole := integer(value)) is None else float(whole)


def boolean(value: object) -> bool | None:
    return value if isinstance(value, bool) else None


_SCALARS: dict[object, tuple[Callable[[object], object], str]] = {
    str: (text, "a string"),
    int: (integer, "a whole number of 64 bits"),
    float: (number, "a number"),
    bool: (boolean, "true or false"),
}


def check(kind: Any, value: object, where: str) -> None:
    """`ShapeError` where `value` is not what `kind` says: a typed dict, a list, a dict, a scalar or `Any`.

    Fields that a typed dict does not have are passed over. A rule in `Annotated[type, rule]` takes the value and gives
    what is wrong with it.
    """
    try:
        _checker(kind)(value)
    except ShapeError as error:
        raise error.below(where) from None


_Checker = Callable[[object], object]  # raises `ShapeError`, whose `where` begins below the value


@cache
def _checker(kind: Any) -> _Checker:
    """What is asked of the type once, and not for each value: logs and replays have millions."""
    origin, arguments = get_origin(kind), get_args(kind)
    if kind in _SCALARS:
        return partial(_check_scalar, *_SCALARS[kind])
    if origin is Annotated:
        return partial(_check_rules, _checker(arguments[0]), arguments[1:])
    if is_typeddict(kind):
        return partial(_check_fields, kind)
    if origin is list:
        return _list if arguments[0] is Any else partial(_check_items, _checker(arguments[0]))
    if origin is dict:
        return partial(_check_entries, *map(_checker, arguments))
    if NoneType in arguments:
        return partial(_check_optional, _checker(next(each for each in arguments if each is not NoneType)))
    if kind is Any:
        return lambda value: None
    raise TypeError(f"{kind} is not a JSON value")


def _check_scalar(convert: Callable[[object], object], wanted: str, value: object) -> None:
    if convert(value) is None:
        raise ShapeError("", f"must be {wanted}")


def _check_rules(check_type: _Checker, rules: tuple[Callable[[Any], str], ...], value: object) -> None:
    check_type(value)
    for rule in rules:
        if problem := rule(value):
            raise ShapeError("", problem)


def _check_fields(kind: Any, value: object) -> None:
    there = _object(value)
    for name, (check_value, is_required) in _fields_of(kind).items():
        if name in there:
            try:
                check_value(there[name])
            except ShapeError as error:
                raise error.below(f": {name}") from None
        elif is_required:
            raise ShapeError(f": {name}", "is missing")


def _list(value: object) -> list[Any]:
    if not isinstance(value, list):
        raise ShapeError("", "must be a list")
    return value


def _check_items(check_item: _Checker, value: object) -> None:
    for place, item in enumerate(_list(value)):
        try:
            check_item(item)
        except ShapeError as error:
            raise error.below(f"[{place}]") from None


def _check_entries(check_key: _Checker, check_value: _Checker, value: object) -> None:
    for key, item in _object(value).items():
        try:
            check_key(key)
        except ShapeError as error:
            raise error.below(": a field's name") from None
        try:
            check_value(item)
        except ShapeError as error:
            raise error.below(f": {key[:60]!r}") from None


def _check_optional(check_value: _Checker, value: object) -> None:
    if value is not None:
        check_value(value)


def _object(value: object) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ShapeError("", f"must be an object, not {type(value).__name__}")
    return value


@cache
def _fields_of(kind: Any) -> dict[str, tuple[_Checker, bool]]:
    """By name how its value is checked, and whether it must be there. Not in `_checker`: a field may have this type."""
    found = {}
    for name, hint in get_type_hints(kind, include_extras=True).items():
        optional = get_origin(hint) is NotRequired
        is_required = name in kind.__required_keys__ and not optional
        found[name] = (_checker(get_args(hint)[0] if optional else hint), is_required)
    return found


def without_zero(text: str) -> str:
    """A rule: the system takes no path, argument or variable with a zero byte in it."""
    return "must not contain a zero byte" if "\0" in text else ""


Word = Annotated[str, without_zero]


def is_count(number: int) -> str:
    return "must not be below zero" if number < 0 else ""


Count = Annotated[int, is_count]


def between(least: int, most: int) -> Callable[[int], str]:
    """A rule for whole numbers."""
    return lambda number: "" if least <= number <= most else f"is {number}, not between {least} and {most}"


def at_most(entries: int) -> Callable[[Sized], str]:
    """A rule for lists and objects."""
    return lambda value: "" if len(value) <= entries else f"contains {len(value):,} entries; the limit is {entries:,}"


def is_moment(text: str) -> str:
    try:
        Moment.parse(text)
    except UsageError:
        return f"is {text[:40]!r}, not a moment"
    return ""


MomentText = Annotated[str, is_moment]
