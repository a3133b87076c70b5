"""The job's key-value store as one rank sees it when all its peers have been there already.

A key that this rank never set is another's, or what this rank set under its own number. A sum counts all peers: they
add what this rank adds, to what the key was set to.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import Any

import torch.distributed as dist

_NUMBER = re.compile(r"\d+")


class StoreState:
    """The keys. others: what another rank has set. lacks: returns when there is reason to look again. partners: ranks
    that set their keys themselves."""

    def __init__(
        self,
        rank: int,
        world: int,
        others: Callable[[str], bytes | None],
        tell: Callable[[str, bytes], None],
        lacks: Callable[[str], None],
        partners: frozenset[int] = frozenset(),
    ) -> None:
        self._rank = rank
        self._world = world
        self._others = others
        self._tell = tell
        self._lacks = lacks
        self._partners = partners
        self.own: dict[str, bytes] = {}
        self._sums: dict[str, int] = {}

    def put(self, key: str, value: bytes) -> None:
        self.own[key] = value
        self._sums.pop(key, None)
        self._tell(key, value)

    def look(self, key: str) -> bytes | None:
        if key in self._sums:
            return str(self.add(key, 0)).encode()
        given = self._set(key)
        return given if given is not None else self._as_a_peer(key)

    def _set(self, key: str) -> bytes | None:
        return self.own[key] if key in self.own else self._others(key)

    def get(self, key: str) -> bytes:
        while (value := self.look(key)) is None:
            self._lacks(key)
        return value

    def add(self, key: str, amount: int) -> int:
        """`amount` 0 reads."""
        base = int(self._set(key) or 0)
        self._sums[key] = self._sums.get(key, 0) + amount
        return base + self._sums[key] * self._world

    def _as_a_peer(self, key: str) -> bytes | None:
        """A virtual peer sets under its number what this rank sets under its own."""
        like = self._set_like(key)
        return None if like is None or like[0] in self._partners else self.own[like[1]]

    def partner_of(self, key: str) -> int | None:
        """The partner that sets this key itself, as far as its name tells."""
        like = self._set_like(key)
        return like[0] if like is not None and like[0] in self._partners else None

    def _set_like(self, key: str) -> tuple[int, str] | None:
        """Whose number is in this key, and the key that this rank has set under its own."""
        for number in _NUMBER.finditer(key):
            own = f"{key[: number.start()]}{self._rank}{key[number.end() :]}"
            if int(number[0]) < self._world and own in self.own:
                return int(number[0]), own
        return None

    def remove(self, key: str) -> bool:
        self._sums.pop(key, None)
        return self.own.pop(key, None) is not None


class EmulatedStore(dist.Store):  # type: ignore[misc]
    """The names that torch's C++ calls, too."""

    def __init__(self, state: StoreState) -> None:
        super().__init__()
        self._state = state
        self._timeout = timedelta(seconds=300)
        _keep.append(self)  # what C++ makes of it does not keep this half alive

    def set(self, key: str, value: str | bytes) -> None:
        self._state.put(key, value.encode() if isinstance(value, str) else bytes(value))

    def get(self, key: str) -> bytes:
        return self._state.get(key)

    def add(self, key: str, amount: int) -> int:
        return self._state.add(key, amount)

    def compare_set(self, key: str, expected: str | bytes, desired: str | bytes) -> bytes:
        wanted = expected.encode() if isinstance(expected, str) else bytes(expected)
        if self._state.look(key) in (None, wanted):
            self.set(key, desired)
        return self._state.get(key)

    def wait(self, keys: Iterable[str], timeout: timedelta | None = None) -> None:
        """Peers are never late."""

    def check(self, keys: Iterable[str]) -> bool:
        return all(self._state.look(key) is not None for key in keys)

    def delete_key(self, key: str) -> bool:
        return self._state.remove(key)

    deleteKey = delete_key  # noqa: N815

    def num_keys(self) -> int:
        return len(self._state.own)

    getNumKeys = num_keys  # noqa: N815

    def set_timeout(self, timeout: timedelta) -> None:
        self._timeout = timeout

    @property
    def timeout(self) -> timedelta:
        return self._timeout

    def append(self, key: str, value: str | bytes) -> None:
        more = value.encode() if isinstance(value, str) else bytes(value)
        self._state.put(key, (self._state.own.get(key) or b"") + more)

    def multi_get(self, keys: Iterable[str]) -> list[bytes]:
        return [self.get(key) for key in keys]

    def multi_set(self, keys: Iterable[str], values: Iterable[str | bytes]) -> None:
        for key, value in zip(keys, values, strict=True):
            self.set(key, value)

    def has_extended_api(self) -> bool:
        return True

    def clone(self) -> EmulatedStore:
        return EmulatedStore(self._state)


_keep: list[Any] = []
