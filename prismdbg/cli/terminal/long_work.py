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
    """An `Onlooker`. A wait of less than `FIRST_S` shows nothing. A wait begins now and has all stages of a command;
    `each`: it begins and ends with each stage, because somebody is asked for a command in between.

    whole: what takes the time that is shown, where a stage could be taken for it. It is told every `RARELY_S` then."""

    def __init__(
        self,
        line: ProgressLine,
        say: Callable[[str], None],
        now: Callable[[], float] = time.monotonic,
        *,
        each: bool = False,
        whole: str = "",
    ) -> None:
        self._line, self._say, self._now, self._each, self._whole = line, say, now, each, whole
        self._began: float | None = None
        self._next = 0.0
        if not each:
            self._begin()

    def _begin(self) -> float:
        self._began = now = self._now()
        self._next = now + (FIRST_S if self._line.is_usable else RARELY_S)
        return now

    def show(self, text: str) -> None:
        began = self._begin() if self._began is None else self._began
        now = self._now()
        if now < self._next:
            return
        if self._line.is_usable:
            self._line.show(text, end=f" ... {now - began:.0f} s{f' of {self._whole}' if self._whole else ''}")
            self._next = now + AGAIN_S
        elif self._whole:
            self._say(f"{text}; {self._whole} has taken {duration(now - began)} so far")
            self._next = now + RARELY_S
        else:
            self._say(f"{text}, after {duration(now - began)}")
            self._next = now + (now - began)

    def over(self) -> None:
        """What the next stage tells is shown at once, if the wait is long already."""
        self._line.clear()
        if self._each:
            self._began = None
        elif self._began is not None and self._line.is_usable:
            self._next = max(self._now(), self._began + FIRST_S)


@contextmanager
def shown(*, each: bool = False, whole: str = "") -> Iterator[None]:
    """Long work inside tells how far it is. `each`, `whole`: see `LongWork`."""
    line = ProgressLine(sys.stderr, wanted=True)
    with console.giving_way(line.clear), looked_on_by(LongWork(line, console.announce, each=each, whole=whole)):
        yield
