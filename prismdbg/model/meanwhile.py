"""How far long work is, for whoever looks on: a command that shows it, and nobody elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Protocol, TypeVar

Tell = Callable[[str], None]
Item = TypeVar("Item")


class Onlooker(Protocol):
    def show(self, text: str) -> None:
        """Takes the place of what was shown before. May be called as often as one likes."""

    def over(self) -> None:
        """What was shown is taken back."""


_onlooker: ContextVar[Onlooker | None] = ContextVar("onlooker", default=None)


def unheard(_: str) -> None:
    """What `working` gives where nobody looks on."""


@contextmanager
def looked_on_by(onlooker: Onlooker) -> Iterator[None]:
    """Of all work in this thread that is done inside."""
    before = _onlooker.set(onlooker)
    try:
        yield
    finally:
        _onlooker.reset(before)


@contextmanager
def working() -> Iterator[Tell]:
    """Around work that may be long. Gives what tells how far it is."""
    onlooker = _onlooker.get()
    if onlooker is None:
        yield unheard
        return
    try:
        yield onlooker.show
    finally:
        onlooker.over()


def one_by_one(items: Sequence[Item], what: str) -> Iterator[Item]:
    """These items, as work of which is told how many are done: `reading the logs of ranks: 512 of 1,024`."""
    with working() as tell:
        for number, item in enumerate(items, 1):
            tell(f"{what}: {number:,} of {len(items):,}")
            yield item
