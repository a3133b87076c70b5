"""How far long work is, on stderr: on a terminal a line that gives way, elsewhere now and then a line of its own."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from prismdbg.cli.terminal.progress_line import ProgressLine
from prismdbg.model.durations import duration
from prismdbg.model.meanwhile import looked_on_by
from prismdbg.render import console

FIRST_S, AGAIN_S = 1.0, 0.2
RARELY_S = 30.0  # after that twice as long each time


class LongWork:
    """An `Onlooker`. Work that takes less than `FIRST_S` shows nothing."""

    def __init__(
        self, line: ProgressLine, say: Callable[[str], None], now: Callable[[], float] = time.monotonic
    ) -> None:
        self._line, self._say, self._now = line, say, now
        self._began: float | None = None
        self._next = 0.0

    def show(self, text: str) -> None:
        now = self._now()
        if self._began is None:
            self._began = now
            self._next = now + (FIRST_S if self._line.is_usable else RARELY_S)
        if now < self._next:
            return
        if self._line.is_usable:
            self._line.show(f"{text} ... {now - self._began:.0f} s")
            self._next = now + AGAIN_S
        else:
            self._say(f"{text}, after {duration(now - self._began)}")
            self._next = now + (now - self._began)

    def over(self) -> None:
        self._line.clear()
        self._began = None


@contextmanager
def shown() -> Iterator[None]:
    """Long work inside tells how far it is."""
    line = ProgressLine(sys.stderr, wanted=True)
    with console.giving_way(line.clear), looked_on_by(LongWork(line, console.announce)):
        yield
