"""How values look to a person, and the two streams: data on stdout, talk on stderr."""

from __future__ import annotations

import json
import os
import re
import select
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from shutil import get_terminal_size
from textwrap import wrap
from typing import TextIO

import click

from prismdbg.model.plain_text import one_line
from prismdbg.model.plain_text import plain as plain
from prismdbg.model.sizes import size as size

_COMMAND = re.compile(r"\bprismdbg [a-z-]+(?: [a-z-]+)? (?=[-A-Z./~]|\S*/)|\btorchrun ")
_GAP = 2  # between two columns
_LEAST_LAST = 16  # characters of a last column that has several rows
_NO_VALUE = ("", "-")
_gives_way: list[Callable[[], None]] = []


@contextmanager
def giving_way(clear: Callable[[], None]) -> Iterator[None]:
    """Whatever is printed inside is printed after `clear`, which takes a line that is not done yet back."""
    _gives_way.append(clear)
    try:
        yield
    finally:
        _gives_way.remove(clear)


def emit(text: str) -> None:
    """One line, or several, of data."""
    _echo(plain(text))


def emit_lines(lines: Iterable[str]) -> None:
    """Each is one line, whatever is in it; in a terminal, of as many rows as it needs."""
    emit("\n".join(terminal_rows(lines, sys.stdout)))


def emit_json(value: object) -> None:
    _echo(json.dumps(value, indent=2))


def say(*lines: str) -> None:
    """To the person, not to the next program; each is one line, whatever is in it, as in `emit_lines`."""
    _echo(plain("\n".join(terminal_rows(lines, sys.stderr))), err=True)


def command_apart(line: str, width: int) -> tuple[str, str]:
    """What is to be broken between words, and a command, with what follows it, which stays in one line, to be copied. A
    few words before it stay in its line."""
    found = _COMMAND.search(line)
    if found is None:
        return line, ""
    return ("", line) if found.start() < width // 3 else (line[: found.start()].rstrip(), line[found.start() :])


def terminal_rows(lines: Iterable[str], stream: TextIO) -> Iterator[str]:
    """Each is one line, whatever is in it; in a terminal, of as many rows as it needs."""
    whole = map(one_line, lines)
    return in_rows(whole, get_terminal_size((80, 24)).columns) if stream.isatty() else whole


def in_rows(lines: Iterable[str], width: int, column: int | None = None) -> Iterator[str]:
    """Of at most `width`, but for commands: a terminal breaks words. `column`: where further rows begin, if not a
    little behind the line's own begin."""
    for line in lines:
        if len(line) <= width:
            yield line
            continue
        indent = " " * (len(line) - len(line.lstrip()) + 2 if column is None else column)
        words, command = command_apart(line, width)
        yield from wrap(words, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
        if command:
            yield f"{indent}{command}" if words else command


def _echo(text: str, *, err: bool = False) -> None:
    for clear in _gives_way:
        clear()
    click.echo(text, err=err)


def announce(text: str) -> None:
    """As `say`, marked as ours: a job or a replay that runs meanwhile writes to the same terminal."""
    say(f"prismdbg: {text}")


@contextmanager
def also_unread() -> Iterator[None]:
    """For what is only told: what is left of it is dropped where its reader reads no more, and the command goes on, to
    an exit code that is true."""
    try:
        yield
    except BrokenPipeError:
        if not (gone := readers_gone()):
            raise
        forget(gone)


def readers_gone() -> list[int]:
    """Of our two outputs."""
    poll = select.poll()
    for stream in (1, 2):
        poll.register(stream, 0)
    return [stream for stream, event in poll.poll(0) if event & (select.POLLERR | select.POLLHUP)]


def forget(streams: Sequence[int]) -> None:
    """What is still in a buffer of theirs, and all that follows, goes nowhere."""
    for stream in streams:
        os.dup2(os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC), stream)


def when(time_ns: int) -> str:
    """Local time, to the second."""
    return f"{datetime.fromtimestamp(time_ns / 1e9).astimezone():%Y-%m-%d %H:%M:%S}"


def columns(header: Sequence[str], rows: Sequence[Sequence[str]], *, right: Sequence[str] = (), width: int = 0) -> str:
    """A table with aligned columns; nothing is cut, so a program can read it too. `right`: names of number columns.
    `width`: of a terminal, 0: any. Where the table is wider, columns without any value are left out, and then the last
    column has several rows."""
    table = [[plain(cell).replace("\n", " ") for cell in row] for row in (header, *rows)]
    if width:
        table = _last_in_rows(_without_empty(table, width), width)
    widths = _widths(table)
    lines = []
    for row in table:
        cells = [
            cell.rjust(width) if name in right else cell.ljust(width)
            for name, cell, width in zip(table[0], row, widths, strict=True)
        ]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


def terminal_width() -> int:
    """Of the standard output; 0 where it is none."""
    return get_terminal_size((80, 24)).columns if sys.stdout.isatty() else 0


def _widths(table: Sequence[Sequence[str]]) -> list[int]:
    return [max(map(len, column)) for column in zip(*table, strict=True)]


def _without_empty(table: list[list[str]], width: int) -> list[list[str]]:
    kept = list(range(len(table[0])))
    widths = _widths(table)
    for at in reversed(range(len(widths))):
        if sum(widths[i] for i in kept) + _GAP * (len(kept) - 1) <= width:
            break
        if all(row[at] in _NO_VALUE for row in table[1:]):
            kept.remove(at)
    return [[row[i] for i in kept] for row in table]


def _last_in_rows(table: list[list[str]], width: int) -> list[list[str]]:
    *before, last = _widths(table)
    room = width - sum(before) - _GAP * len(before)
    if last <= room or room < _LEAST_LAST:
        return table
    found = []
    for *cells, text in table:
        first, *more = wrap(text, room, break_on_hyphens=False) or [""]
        found += [[*cells, first], *([*("" for _ in cells), line] for line in more)]
    return found


def pairs(rows: Sequence[tuple[str, str]]) -> str:
    """Names and values, aligned; a value of several lines stays below itself."""
    width = max(len(name) for name, _ in rows)
    indent = "\n" + " " * (width + 2)
    return "\n".join(f"{name.ljust(width)}  {plain(value).replace(chr(10), indent)}".rstrip() for name, value in rows)


@contextmanager
def byte_progress(label: str, total_bytes: int) -> Iterator[Callable[[int], None]]:
    """A bar on stderr, only where a person looks at it."""
    if not sys.stderr.isatty() or not total_bytes:
        yield lambda _more: None
        return
    with click.progressbar(length=total_bytes, label=label, file=sys.stderr) as bar:
        yield bar.update
