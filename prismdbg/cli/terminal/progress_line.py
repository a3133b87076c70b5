"""What is going on meanwhile, in a line of a terminal that gives way to whatever is said next."""

from __future__ import annotations

import os
import shutil
from typing import TextIO

from prismdbg.render.console import plain

_ANEW = "\r\x1b[2K"


class ProgressLine:
    """Shows nothing where there is no terminal, or one that cannot take a line back."""

    def __init__(self, output: TextIO, *, wanted: bool) -> None:
        self._output = output
        self._wanted = wanted and output.isatty() and os.environ.get("TERM", "dumb") not in ("", "dumb")
        self._is_shown = False

    @property
    def is_usable(self) -> bool:
        return self._wanted

    def show(self, *texts: str, end: str = "") -> None:
        """The first one that fits before `end`, which is always there; else as many parts of the last one as do."""
        if self._wanted:
            from prismdbg.render.fitting import cut, first_fitting, parts  # not where nothing is shown

            room = max(shutil.get_terminal_size().columns - 1, 1)
            *longer, shortest = map(plain, texts)
            shown = first_fitting((*longer, *parts(shortest)), max(room - len(end), 1))
            self._output.write(_ANEW + cut(shown + end, room))
            self._output.flush()
            self._is_shown = True

    def clear(self) -> None:
        if self._is_shown:
            self._output.write(_ANEW)
            self._output.flush()
            self._is_shown = False
