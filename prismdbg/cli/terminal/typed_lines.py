"""Where a debugger's commands come from: a terminal with history and completion, or a pipe until its end."""

from __future__ import annotations

import contextlib
import os
import select
from collections.abc import Iterable, Iterator, Sequence

from prismdbg.cli.terminal.line_history import LineHistory
from prismdbg.errors import UsageError, WaitTimeout

MAX_LINE_BYTES = 64 << 10


def from_terminal(prompt: str, words: Sequence[str], history: LineHistory | None = None) -> Iterator[str]:
    """Until end of file (Ctrl-D). Ctrl-C drops the line that is being typed. `history`: of earlier sessions, which gets
    each line."""
    with contextlib.suppress(ImportError):
        _complete(words)
        _recall(history.read() if history is not None else [])
    while True:
        try:
            line = input(prompt)
            if history is not None:
                history.add(line)
            yield line
        except EOFError:
            print()
            return
        except KeyboardInterrupt:
            print()


def _complete(words: Sequence[str]) -> None:
    import readline

    def complete(text: str, state: int) -> str | None:
        at_start = readline.get_begidx() == 0
        found = [f"{word} " for word in words if at_start and word.startswith(text)]
        return found[state] if state < len(found) else None

    readline.set_completer(complete)
    readline.parse_and_bind("tab: complete")


def _recall(lines: Iterable[str]) -> None:
    import readline

    for line in lines:
        readline.add_history(line)


def from_pipe(descriptor: int, bound_s: float) -> Iterator[str]:
    """Lines until end of file; gives up when none comes for `bound_s`: an open pipe may have nobody behind it."""
    buffer = b""
    while True:
        line, newline, rest = buffer.partition(b"\n")
        if newline:
            buffer = rest
            yield line.decode("utf-8", "replace")
            continue
        if len(buffer) > MAX_LINE_BYTES:
            raise UsageError("a line of commands is too long", hint="write one command a line")
        if not select.select([descriptor], [], [], bound_s)[0]:
            raise WaitTimeout(f"waited {bound_s:g} s for a command on standard input", hint="send a command, or `quit`")
        data = os.read(descriptor, 1 << 16)
        if not data:
            if buffer:
                yield buffer.decode("utf-8", "replace")
            return
        buffer += data
