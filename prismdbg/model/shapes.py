"""JSON values from elsewhere against the typed dicts that say what they must be: the one check that every reader calls.

A reader calls `check` once; after it the value has that type. The reader decides which error a `ShapeError` becomes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sized
from functools import cache
from types import NoneType
from typing import Annotated, Any, NoReturn, NotRequired, get_args, get_origin, get_type_hints, is_typeddict

from prismdbg.errors import UsageError
from prismdbg.model.moment import Moment

_LARGEST = 2**63 - 1


class ShapeError(Exception):
    """`where`: the path of fields; `problem`: what is wrong there."""

    def __init__(self, where: str, problem: str) -> None:
        super().__init__(f"{where} {problem}")
        self.where = where
        self.problem = problem


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
    origin, arguments = get_origin(kind), get_args(kind)
    if kind in _SCALARS:
        convert, wanted = _SCALARS[kind]
        if convert(value) is None:
            _refuse(where, f"must be {wanted}")
    elif origin is Annotated:
        check(arguments[0], value, where)
        for problem in filter(None, (rule(value) for rule in arguments[1:])):
            _refuse(where, problem)
    elif is_typeddict(kind):
        _check_fields(kind, _object(value, where), where)
    elif origin is list:
        if not isinstance(value, list):
            _refuse(where, "must be a list")
        for place, item in enumerate(value if arguments[0] is not Any else ()):
            check(arguments[0], item, f"{where}[{place}]")
    elif origin is dict:
        for key, item in _object(value, where).items():
            check(arguments[0], key, f"{where}: a field's name")
            check(arguments[1], item, f"{where}: {key[:60]!r}")
    elif NoneType in arguments:
        if value is not None:
            check(next(each for each in arguments if each is not NoneType), value, where)
    elif kind is not Any:
        raise TypeError(f"{kind} is not a JSON value")


def _check_fields(kind: Any, value: dict[str, Any], where: str) -> None:
    for name, (wanted, is_required) in _fields_of(kind).items():
        if name in value:
            check(wanted, value[name], f"{where}: {name}")
        elif is_required:
            _refuse(f"{where}: {name}", "is missing")


def _object(value: object, where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        _refuse(where, f"must be an object, not {type(value).__name__}")
    return value


@cache
def _fields_of(kind: Any) -> dict[str, tuple[Any, bool]]:
    """By name what it must be, and whether it must be there."""
    found = {}
    for name, hint in get_type_hints(kind, include_extras=True).items():
        optional = get_origin(hint) is NotRequired
        found[name] = (get_args(hint)[0] if optional else hint, name in kind.__required_keys__ and not optional)
    return found


def _refuse(where: str, problem: str) -> NoReturn:
    raise ShapeError(where, problem)


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
