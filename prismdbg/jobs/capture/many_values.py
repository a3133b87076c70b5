"""Finds which of many values a text holds: a program may have printed 20,000 tokens, and each is masked everywhere."""

from __future__ import annotations

from collections.abc import Iterable
from typing import AnyStr, Generic

from prismdbg.capsule.secrets.masking import LEAST_WORD

FEW = 64  # values: as long as one pass over a text in Python takes


class Values(Generic[AnyStr]):
    """Each has LEAST_WORD characters or more, or as many bytes."""

    def __init__(self, values: Iterable[AnyStr]) -> None:
        self._values: frozenset[AnyStr] = frozenset(values)
        self._by_head: dict[AnyStr, dict[int, set[AnyStr]]] = {}
        for value in self._values:
            self._by_head.setdefault(value[:LEAST_WORD], {}).setdefault(len(value), set()).add(value)

    def held_by(self, text: AnyStr) -> set[AnyStr]:
        if len(self._values) <= FEW:
            return {value for value in self._values if value in text}
        found: set[AnyStr] = set()
        for at in range(len(text) - LEAST_WORD + 1):
            for size, values in self._by_head.get(text[at : at + LEAST_WORD], {}).items():
                if (part := text[at : at + size]) in values:
                    found.add(part)
        return found
