"""`replay -x FILE`: the debugger's commands from a file, a line each; a wrong one is refused before the start."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from prismdbg.cli.terminal.lines_of_rank import by_lines
from prismdbg.debugger.known_names import known_before_start
from prismdbg.debugger.time_travel import open_travel
from prismdbg.errors import UsageError
from prismdbg.jobs.replay.replay import ReplayRequest, Say
from prismdbg.session.known import Known
from prismdbg.session.line import Verb, parse_line
from prismdbg.session.line_check import check_line

MAX_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Lines:
    """`numbered`: lines of `name`, without empty ones and those that begin with #."""

    name: str
    numbered: tuple[tuple[int, str], ...]

    def check(self, known: Callable[[], Known]) -> None:
        """`UsageError` for the first that is wrong whatever the rank does, as far as lines are carried out."""
        for number, text in self.numbered:
            try:
                check_line(line := parse_line(text), known)
            except UsageError as error:
                raise UsageError(f"{self.name}:{number}: {error}", hint=error.hint) from None
            if line.verb is Verb.QUIT:
                break


def read_lines(name: str) -> Lines:
    """`-` is standard input."""
    try:
        data = sys.stdin.buffer.read(MAX_BYTES + 1) if name == "-" else Path(name).read_bytes()
        lines = data.decode("utf-8").splitlines()
    except OSError as error:
        raise UsageError(f"{name} cannot be read: {error.strerror}", hint="check the path after -x") from None
    except UnicodeDecodeError as error:
        raise UsageError(f"{name} is not UTF-8: byte {error.start}", hint="give a text file") from None
    if len(data) > MAX_BYTES:
        raise UsageError(f"{name} has more than {MAX_BYTES} bytes", hint="give a shorter file of commands")
    wanted = [(number, line.strip()) for number, line in enumerate(lines, 1)]
    wanted = [(number, line) for number, line in wanted if line and not line.startswith("#")]
    return Lines(name, tuple(wanted))


def replay_lines(request: ReplayRequest, lines: Lines, *, bound_s: float, say: Say) -> int:
    """The exit code says what came of it: a line that could not be carried out makes it a failure."""
    lines.check(cache(lambda: known_before_start(request.capsule)))
    with open_travel(request, say) as travel:
        return by_lines(travel, [text for _, text in lines.numbered], bound_s=bound_s, echo=True, strict=True)
