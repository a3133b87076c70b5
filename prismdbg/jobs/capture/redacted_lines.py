"""Recovers what was redacted in the lines of a traceback from the program's files in the capsule.

A rank redacts what it knows as a secret from an exception's message, where a URL or a name tells it. The same value may
stand in the program as a literal that no rule finds. The traceback names the file and the line, without the value.
"""

from __future__ import annotations

import codecs
import re
import tokenize
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

from prismdbg.capsule import layout, transfer
from prismdbg.capsule.files import SMALL_FILE_BYTES, Place, RankFile
from prismdbg.capsule.log.events import RankLog
from prismdbg.capsule.secrets.masking import (
    MOST_ELSEWHERE,
    REDACTED,
    redacted_parts,
    worth_a_search,
)
from prismdbg.errors import CapsuleError

ALL_FILES_BYTES = 64 << 20  # of the files that tracebacks name; a program's are far smaller
# In a traceback of an exception group, each line begins with a margin.
_FRAME = re.compile(r'(?P<margin>(?: *\| )?)  File "(?P<path>[^"\n]+)", line (?P<line>\d{1,9})[^\n]*\n')
_CUT = re.compile(r"\.\.\. \(of \d+ characters\)\Z")  # as the rank ends what it shortens
_GAP = re.compile(r"\.\.\.<(\d{1,9}) lines>\.\.\.")
_LINES_OF_FRAME = 16  # newer Pythons print a statement of several lines
_LINE_BYTES = 256 << 10  # of a line of a program; a rank searches 64 Ki characters
# Characters beside what was redacted: at the line that the frame names, and in the lines around it, where
# `"<redacted>",` would match any text.
_LEAST_FIXED, _LEAST_FIXED_AROUND = 2, 6
_UTF8 = "utf-8"
# What a program may say it is encoded in: a capsule is hostile, and Python has codecs that are no encodings of a file.
_ENCODINGS = frozenset(
    (
        _UTF8, "ascii", "iso8859-1", "iso8859-2", "iso8859-15", "cp1250", "cp1251", "cp1252", "koi8-r", "koi8-u",
        "big5", "gb2312", "gbk", "gb18030", "euc_jp", "shift_jis", "cp932", "euc_kr", "cp949",
    )
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovered:
    """`values`: worth a search; encoded as UTF-8 with `surrogateescape` they are what the file holds. `unread`: paths
    of the files that were not looked at because there were too many bytes."""

    values: tuple[str, ...]
    unread: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Shown:
    """A line with REDACTED in it, of the frame at line `frame`, and at which line of the file it stands. `is_cut`: the
    last REDACTED is for the rest of the line."""

    frame: int
    line: int
    text: str
    is_cut: bool

    @property
    def fixed(self) -> int:
        return len("".join(self.text.replace(REDACTED, "").split()))


@dataclass(slots=True, kw_only=True)
class _Content:
    paths: list[str] = field(default_factory=list)
    shown: dict[_Shown, None] = field(default_factory=dict)


def values_in_lines(folder: Path, files: Iterable[RankFile], logs: Iterable[RankLog]) -> Recovered:
    """Return the values that tracebacks in `logs` lack and that the files in the capsule `folder` have.

    At most MOST_ELSEWHERE lines are looked at. A file that is no longer as it was then, or a line that does not match,
    gives nothing. `CapsuleError` where a content is a link or cannot be read.
    """
    wanted: dict[str, dict[_Shown, None]] = {}
    for path, shown in islice(_redacted_lines(logs), MOST_ELSEWHERE):
        wanted.setdefault(path, {})[shown] = None
    contents: dict[str, _Content] = {}  # many files may have the same one
    for file in sorted(files, key=lambda file: file.size_bytes) if wanted else ():
        lines = wanted.get(file.path, {}) | wanted.get(Path(file.path).name, {})
        if lines and file.place is Place.INSIDE and file.size_bytes <= SMALL_FILE_BYTES:
            content = contents.setdefault(file.sha256, _Content())
            content.paths.append(file.path)
            content.shown |= lines
    found: set[str] = set()
    unread: list[str] = []
    left = ALL_FILES_BYTES
    for sha256, content in contents.items():
        if left <= 0:
            unread += content.paths
            continue
        data = read_part(folder / layout.content(sha256), 0, SMALL_FILE_BYTES)
        left -= len(data)
        found |= set(_values_in(data, content.shown))
    return Recovered(values=worth_a_search(found - {REDACTED}), unread=tuple(unread))


def read_part(path: Path, offset: int, size: int) -> bytes:
    """Return `size` bytes of a file in a capsule, fewer at its end. `CapsuleError` where it cannot be read."""
    try:
        with reading(path), transfer.open_plain(path) as file:
            file.seek(offset)
            return file.read(size)
    except FileNotFoundError:  # it fell out of the window
        return b""


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """`CapsuleError` where a file in a capsule cannot be read; `FileNotFoundError` where it is missing."""
    try:
        yield
    except FileNotFoundError:
        raise
    except OSError as error:
        why = f"{path} cannot be read: {error.strerror}"
        raise CapsuleError(why, hint="fetch it again: the file was altered") from error


def _redacted_lines(logs: Iterable[RankLog]) -> Iterator[tuple[str, _Shown]]:
    """Path of a frame, and one of its lines that has REDACTED in it."""
    entries = (str(entry) for log in logs for note in log.notes for entry in note.data.get("traceback") or ())
    for entry in entries:
        if REDACTED in entry and (frame := _FRAME.match(entry)) is not None:
            lines = _lines_of(entry[frame.end() :], frame["margin"], int(frame["line"]))
            yield from ((frame["path"], shown) for shown in lines)


def _lines_of(text: str, margin: str, frame: int) -> Iterator[_Shown]:
    cut = _CUT.search(text)
    *whole, last = (text if cut is None else text[: cut.start()]).split("\n")
    at = frame
    for shown in (line.removeprefix(margin).strip() for line in whole):
        if (gap := _GAP.fullmatch(shown)) is not None:
            at += int(gap[1])
        elif not shown or shown.strip("~^ "):  # not a line that marks parts of the one above
            if REDACTED in shown:
                yield _Shown(frame=frame, line=at, text=shown, is_cut=False)
            at += 1
    last = _without_cut_value(last.removeprefix(margin).strip())
    if cut is not None and REDACTED in last:
        yield _Shown(frame=frame, line=at, text=last + REDACTED, is_cut=True)


def _without_cut_value(text: str) -> str:
    """Without a value at its end, or a part of REDACTED: nobody knows where such a value ends."""
    part = next((size for size in range(len(REDACTED) - 1, 0, -1) if text.endswith(REDACTED[:size])), 0)
    text = text[: len(text) - part]
    while text.endswith(REDACTED):
        text = text.removesuffix(REDACTED)
    return text


def _values_in(data: bytes, wanted: Iterable[_Shown]) -> Iterator[str]:
    lines = data.splitlines()  # of bytes, as Python counts them: a form feed or U+2028 ends none
    encoding = _encoding_of(lines)
    if lines:
        lines[0] = lines[0].removeprefix(codecs.BOM_UTF8)
    for shown in wanted:
        for value in _parts_of(lines, encoding, shown):
            yield value
            yield value.encode(encoding, "surrogateescape").decode(_UTF8, "surrogateescape")


def _parts_of(lines: list[bytes], encoding: str, shown: _Shown) -> list[str]:
    """From the line itself; where that is another, from the first one around it that matches."""
    exact, around = max(shown.line, 1) - 1, max(shown.frame, 1) - 1
    places = [exact] if shown.fixed >= _LEAST_FIXED else []
    places += range(around, around + _LINES_OF_FRAME) if shown.fixed >= _LEAST_FIXED_AROUND else []
    for line in (lines[place] for place in places if place < len(lines)):
        plain = line[:_LINE_BYTES].decode(encoding, "surrogateescape").strip()
        # Where it is cut, what follows may be the line's end.
        parts = redacted_parts(shown.text, plain + " " * shown.is_cut)
        if parts:
            return [plain[start:stop] for start, stop in (parts[:-1] if shown.is_cut else parts)]
    return []


def _encoding_of(lines: list[bytes]) -> str:
    try:
        named, _ = tokenize.detect_encoding(iter([line[:_LINE_BYTES] + b"\n" for line in lines[:2]]).__next__)
    except SyntaxError:  # Python would not run it
        return _UTF8
    name = codecs.lookup(named).name
    return name if name in _ENCODINGS else _UTF8
