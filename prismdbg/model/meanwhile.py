"""How far long work is, for whoever looks on: a command that shows it, and nobody elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Protocol, TypeVar

from prismdbg.model.sizes import size

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


def by_bytes(tell: Tell, what: str, total_bytes: int = 0) -> Callable[[int], None]:
    """Takes how many more bytes are done, and tells `checking files: 3.2 GiB of 4.0 GiB`. 0: not known."""
    done = 0
    of_all = f" of {size(total_bytes)}" if total_bytes else ""

    def more(size_bytes: int) -> None:
        nonlocal done
        done += size_bytes
        tell(f"{what}: {size(done)}{of_all}")

    return more
