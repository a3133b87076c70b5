"""Text into tokens. Knows numbers with sizes (`2GiB`), quoted texts, names and signs; nothing of grammar."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from enum import StrEnum

from prismdbg.errors import quoted
from prismdbg.expr.place import complaint

MAX_TEXT = 1000
MAX_DIGITS = 40

UNITS = {"B": 1} | {
    prefix + suffix: base**power
    for suffix, base in (("B", 1000), ("iB", 1024))
    for power, prefix in enumerate("KMGTP", 1)
}

_SIGNS = re.compile(r"\*\*|//|==|!=|<=|>=|[-+*/%<>()\[\],.:]")
_NUMBER = re.compile(r"0[xX][0-9a-fA-F_]+|(?:\d[\d_]*\.?[\d_]*|\.\d[\d_]*)(?:[eE][-+]?\d+)?")
_NAME = re.compile(r"[^\W\d]\w*")
_TEXT = re.compile(r"'((?:[^'\\\n]|\\.)*)'|\"((?:[^\"\\\n]|\\.)*)\"")
_SPACES = " \t\n\r\f"  # as in Python: other spaces of Unicode are none
_ESCAPE = re.compile(r"\\(.)")
_ESCAPES = {"n": "\n", "t": "\t", "\\": "\\", "'": "'", '"': '"'}


class Kind(StrEnum):
    NUMBER = "number"
    TEXT = "text"
    NAME = "name"
    SIGN = "sign"
    END = "end"


@dataclass(frozen=True, slots=True)
class Token:
    """`value` is what a number or a text stands for; None for the others."""

    kind: Kind
    text: str
    column: int
    value: int | float | str | None = None


def tokens(text: str) -> list[Token]:
    """All tokens and END. `UsageError` with a caret for what is none."""
    if len(text) > MAX_TEXT:
        raise complaint(text, MAX_TEXT, f"an expression has at most {MAX_TEXT} characters, this one {len(text)}")
    found: list[Token] = []
    column = 0
    while column < len(text):
        if text[column] in _SPACES:
            column += 1
            continue
        token = _token(text, column)
        found.append(token)
        column += len(token.text)
    found.append(Token(Kind.END, "", len(text)))
    return found


def _token(text: str, column: int) -> Token:
    character = text[column]
    if character in "'\"":
        return _quoted(text, column)
    if character in "0123456789" or (character == "." and text[column + 1 : column + 2].isdecimal()):
        return _number(text, column)
    if (name := _NAME.match(text, column)) and name.group().isidentifier():
        return Token(Kind.NAME, name.group(), column)
    if sign := _SIGNS.match(text, column):
        return Token(Kind.SIGN, sign.group(), column)
    hint = "use == to compare; assignments are not possible" if character == "=" else ""
    raise complaint(text, column, f"{character!r} is not valid here", hint=hint)


def _quoted(text: str, column: int) -> Token:
    match = _TEXT.match(text, column)
    if match is None:
        raise complaint(text, column, "this string is not closed", hint="add the closing quote")
    raw = match.group(1) if match.group(1) is not None else match.group(2)

    def escaped(found: re.Match[str]) -> str:
        if found.group(1) not in _ESCAPES:
            raise complaint(text, column, f"unknown escape {found.group()}", hint=r"use one of: \n \t \\ \' " + r"\"")
        return _ESCAPES[found.group(1)]

    return Token(Kind.TEXT, match.group(), column, _ESCAPE.sub(escaped, raw))


def _number(text: str, column: int) -> Token:
    match = _NUMBER.match(text, column)
    digits = match.group() if match is not None else ""
    unit = _NAME.match(text, column + len(digits))
    suffix = unit.group() if unit is not None else ""
    if not digits or len(digits) > MAX_DIGITS:
        raise complaint(text, column, f"a number has at most {MAX_DIGITS} digits")
    try:
        value = _value(digits)
    except ValueError:
        raise complaint(text, column, f"{digits!r} is not a number") from None
    if not math.isfinite(value):
        raise complaint(text, column, f"{digits} is too large")
    if suffix:
        if suffix not in UNITS:
            raise complaint(
                text, column + len(digits), f"unknown unit {quoted(suffix)}", hint="use one of: " + " ".join(UNITS)
            )
        value = round(value * UNITS[suffix]) if value < 1e15 else value * UNITS[suffix]
    return Token(Kind.NUMBER, digits + suffix, column, value)


def _value(digits: str) -> int | float:
    if digits[:2] in ("0x", "0X"):
        return int(digits, 16)
    if any(c in digits for c in ".eE"):
        return float(digits)
    return int(digits)
