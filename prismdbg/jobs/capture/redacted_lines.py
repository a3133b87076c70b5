"""Recovers what was redacted in the lines of a traceback from the program's files in the capsule.

A rank redacts what it knows as a secret from an exception's message, where a URL or a name tells it. The same value may
stand in the program as a literal that no rule finds. The traceback names the file and the line, without the value.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from prismdbg.capsule import layout, transfer
from prismdbg.capsule.files import SMALL_FILE_BYTES, Place, RankFile
from prismdbg.capsule.log.events import RankLog
from prismdbg.capsule.secrets.rules import MOST_ELSEWHERE, REDACTED, redacted_parts, worth_a_search

_FRAME = re.compile(r'  File "([^"\n]+)", line (\d{1,9})[^\n]*\n')
_LINES_OF_FRAME = 16  # newer Pythons print a statement of several lines


def values_in_lines(folder: Path, files: Iterable[RankFile], logs: Iterable[RankLog]) -> tuple[str, ...]:
    """Return the values that tracebacks in `logs` lack and that the files in the capsule `folder` have.

    At most MOST_ELSEWHERE lines are looked at. A file that is no longer as it was then, or a line that does not match,
    gives nothing.
    """
    wanted: dict[str, dict[tuple[int, str], None]] = {}
    for number, (path, line, shown) in enumerate(_redacted_lines(logs)):
        if number == MOST_ELSEWHERE:
            break
        wanted.setdefault(path, {})[line, shown] = None
    found: set[str] = set()
    for file in files if wanted else ():
        lines = [*wanted.get(file.path, ()), *wanted.get(Path(file.path).name, ())]
        if lines and file.place is Place.INSIDE and file.size_bytes <= SMALL_FILE_BYTES:
            text = _text(folder / layout.content(file.sha256)).splitlines()
            for line, shown in lines:
                found |= set(_parts_of(text[line - 1 : line - 1 + _LINES_OF_FRAME], shown))
    return worth_a_search(found - {REDACTED})


def _redacted_lines(logs: Iterable[RankLog]) -> Iterator[tuple[str, int, str]]:
    """Path and line number of a frame, and one of its lines that has REDACTED in it."""
    entries = (str(entry) for log in logs for note in log.notes for entry in note.data.get("traceback") or ())
    for entry in entries:
        if REDACTED in entry and (frame := _FRAME.match(entry)) is not None:
            lines = map(str.strip, entry[frame.end() :].splitlines())
            yield from ((frame[1], int(frame[2]), line) for line in lines if REDACTED in line)


def _parts_of(lines: Sequence[str], shown: str) -> Iterator[str]:
    for line in lines:
        plain = line.strip()
        for start, stop in redacted_parts(shown, plain):
            yield plain[start:stop]


def _text(path: Path) -> str:
    try:
        with transfer.open_plain(path) as file:
            return file.read(SMALL_FILE_BYTES).decode("utf-8", "surrogateescape")
    except FileNotFoundError:  # it fell out of the window
        return ""
