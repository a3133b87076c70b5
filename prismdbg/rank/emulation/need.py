"""The emulated rank lacks what only another rank knows: said in a file, and the process ends, to be run again later."""

from __future__ import annotations

import json
import os
import sys
import traceback
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import timedelta
from pathlib import Path
from typing import NoReturn

import torch.distributed as dist

from prismdbg.rank.emulation.settings import NEED_EXIT, Emulation

_LIBRARIES = ("/site-packages/", "/dist-packages/", "/lib/python3")


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """`source`: the rank that knows, -1 where nobody can be named. `key`: under which it would be kept.

    where: the program's own line.
    """

    rank: int
    source: int
    collective: str
    axis: str
    identity: str
    key: str = ""
    caller: str = ""
    where: str = ""


def say_need(settings: Emulation, need: Need) -> NoReturn:
    """Ends the process at once: the program must not go on, nor catch it."""
    data = {**asdict(need), "where": _program_line()}
    temporary = Path(settings.needs + ".tmp")
    temporary.write_text(json.dumps(data))
    temporary.replace(settings.needs)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(NEED_EXIT)


def _program_line() -> str:
    """The innermost line that is neither ours nor a library's."""
    ours = str(Path(__file__).parents[1])
    frames = [f for f in traceback.extract_stack() if not f.filename.startswith((ours, "<"))]
    own = [f for f in frames if not any(part in f.filename for part in _LIBRARIES)]
    return next((f"{f.filename}:{f.lineno} in {f.name}" for f in reversed(own or frames)), "")


class LackingWork(dist.Work):  # type: ignore[misc]
    """A receive that was posted and cannot be answered: who waits for it, or asks whether it is there, says so."""

    def __init__(self, say: Callable[[], NoReturn]) -> None:
        super().__init__()
        self._say = say
        _alive.append(self)  # what C++ makes of it does not keep this half alive

    def wait(self, timeout: timedelta | None = None) -> bool:
        self._say()

    def is_completed(self) -> bool:
        self._say()


_alive: list[LackingWork] = []
