"""Expressions that are shown at every stop, numbered from 1."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from prismdbg.errors import UsageError
from prismdbg.expr.parser import parse

MAX_WATCHES = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class Watch:
    number: int
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Watched:
    """What a watch is at a stop. `value` as the rank rendered it, or `error`. `changed`: since the stop before, None
    where that is not known. `before`: the value at the stop before, None where it had none."""

    number: int
    text: str
    value: dict[str, Any] | None = None
    error: str = ""
    changed: bool | None = None
    before: dict[str, Any] | None = None


class WatchList:
    def __init__(self) -> None:
        self._watches: dict[int, Watch] = {}
        self._next = 1
        self._digests: dict[int, str] = {}
        self._values: dict[int, dict[str, Any]] = {}

    @property
    def all(self) -> tuple[Watch, ...]:
        return tuple(self._watches.values())

    def add(self, text: str) -> Watch:
        """Reads the expression first; the same one twice is one."""
        parse(text)
        for watch in self.all:
            if watch.text == text:
                return watch
        if len(self._watches) >= MAX_WATCHES:
            raise UsageError(f"there are already {MAX_WATCHES} watch expressions", hint="delete some with unwatch")
        watch = Watch(number=self._next, text=text)
        self._watches[self._next] = watch
        self._next += 1
        return watch

    def remove(self, number: int) -> Watch:
        if number not in self._watches:
            raise UsageError(f"no watch expression number {number}", hint="type `watch` to list them")
        return self._watches.pop(number)

    def seen(self, watch: Watch, value: dict[str, Any]) -> Watched:
        """`value` carries a digest of the whole, not only of what is shown."""
        digest = str(value.pop("digest", ""))
        before = self._digests.get(watch.number)
        self._digests[watch.number] = digest
        changed = before != digest if before and digest else None
        shown = self._values.get(watch.number)
        self._values[watch.number] = value
        return Watched(number=watch.number, text=watch.text, value=value, changed=changed, before=shown)
