"""Rules of the user's own for what is a secret, beside those of `rules` and `shapes`. One set a process."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import suppress

Patterns = tuple[re.Pattern[str], ...]

_names: Patterns = ()
_values: Patterns = ()


def use(names: Patterns, values: Patterns) -> None:
    """names: of variables, options and fields that hold secrets, whole. values: of secrets; of a pattern with groups
    the last one is the secret."""
    global _names, _values
    _names, _values = names, values


def as_texts() -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The names and the values, for `use_texts` in another process."""
    return tuple(pattern.pattern for pattern in _names), tuple(pattern.pattern for pattern in _values)


def use_texts(names: Iterable[str], values: Iterable[str]) -> None:
    """As `use`. A text that this Python cannot compile is left out: it may be an older one than the user's."""
    use(tuple(_compiled(names)), tuple(_compiled(values)))


def _compiled(texts: Iterable[str]) -> Iterator[re.Pattern[str]]:
    for text in texts:
        with suppress(re.error):
            yield re.compile(text)


def is_secret_name(name: str) -> bool:
    return any(pattern.fullmatch(name) for pattern in _names)


def find_values(text: str) -> Iterator[tuple[int, str]]:
    """Where each one stands, and what it is."""
    for pattern in _values:
        for match in pattern.finditer(text):
            group = match.lastindex or 0
            if match[group]:
                yield match.start(group), match[group]
