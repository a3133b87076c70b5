"""Rules of the user's own for what is a secret, beside those of `rules` and `shapes`. One set a process."""

from __future__ import annotations

import re
from collections.abc import Iterator

Patterns = tuple[re.Pattern[str], ...]

_names: Patterns = ()
_values: Patterns = ()


def use(names: Patterns, values: Patterns) -> None:
    """names: of variables, options and fields that hold secrets, whole. values: of secrets; of a pattern with groups
    the last one is the secret."""
    global _names, _values
    _names, _values = names, values


def is_secret_name(name: str) -> bool:
    return any(pattern.fullmatch(name) for pattern in _names)


def find_values(text: str) -> Iterator[tuple[int, str]]:
    """Where each one stands, and what it is."""
    for pattern in _values:
        for match in pattern.finditer(text):
            group = match.lastindex or 0
            if match[group]:
                yield match.start(group), match[group]
