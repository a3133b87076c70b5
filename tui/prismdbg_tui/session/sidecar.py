"""What a person leaves at a capsule: notes on moments, breakpoints, watches, the chosen panes, typed lines.

It lies in a file beside the capsule, which is not changed, and is read when the capsule is opened again. Other screens
may have the same capsule open: each writes what it has changed, and leaves what they have.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from prismdbg.capsule.partial import lock, partial_file
from prismdbg.errors import CapsuleError, FacilityError, PrismError
from prismdbg.model.moment import Moment
from prismdbg.session.breakpoint_line import parse_breakpoint
from prismdbg.session.breakpoints import BreakpointSpec
from prismdbg.session.line import MAX_LINE, Verb
from prismdbg_tui.session.visible_panes import PANES

SUFFIX = ".session.json"
VERSION = 1
MAX_BYTES = 1 << 20
MAX_NOTES, MAX_LINES = 1000, 500
LOCK_BOUND_S = 1.0
_POLL_S = 0.01
_AROUND_LINE = 8  # at most: indentation, a comma, the brackets


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """`notes`: the text of each moment, empty for a bookmark. lines: they set breakpoints and watches again; None where
    no rank ran. panes: those chosen, the last one at the end. history: of the console, oldest first."""

    notes: Mapping[Moment, str] = field(default_factory=dict)
    lines: tuple[str, ...] | None = None
    panes: tuple[str, ...] = ()
    history: tuple[str, ...] = ()


_NOTHING = Kept()


class Sidecar:
    """`path`: None where there is no place for it; then nothing is read or kept. keeps: else it is only read."""

    def __init__(self, path: Path | None, *, keeps: bool = True) -> None:
        self.path = path
        self._keeps = keeps
        self._damaged = False

    def read(self) -> Kept:
        """`CapsuleError` where the file is damaged; then it is left as it is."""
        return self._there() or Kept()

    def _there(self) -> Kept | None:
        """None where there is no file."""
        if self.path is None:
            return None
        try:
            with self.path.open("rb") as file:
                data = file.read(MAX_BYTES + 1)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise self._unreadable(str(error)) from error
        try:
            if len(data) > MAX_BYTES:
                raise ValueError(f"it is larger than {MAX_BYTES} bytes")
            return _kept(json.loads(data))
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError, PrismError) as error:
            raise self._unreadable(str(error)) from error

    def write(self, kept: Kept, since: Kept = _NOTHING) -> None:
        """What is other in `kept` than in `since`, which the screen read or wrote last, into what is there now; all of
        `kept` where nothing is. All of it or nothing, but for the oldest lines typed, where it would be too large to be
        read again. `FacilityError` where it cannot be written, `CapsuleError` where what is there is damaged."""
        if self.path is None or self._damaged or not self._keeps:
            return
        with _alone_at(self.path):
            there = self._there()
            data = _text_of(kept if there is None else _changed(there, since, kept))
            try:
                with partial_file(self.path, mode=0o600) as partial:
                    partial.file.write(data.encode())
                    partial.publish(self.path)
            except OSError as error:
                raise FacilityError(
                    f"notes and breakpoints cannot be saved: {error}",
                    hint="copy the capsule into a folder to which you can write",
                ) from error

    def _unreadable(self, why: str) -> CapsuleError:
        self._damaged = True
        return CapsuleError(f"{self.path} cannot be read: {why}", hint="remove it to begin without notes")


@contextmanager
def _alone_at(path: Path) -> Iterator[None]:
    """By a lock on its capsule, which other screens hold for milliseconds; not on the folder, which a process holds for
    as long as it uses what it has fetched into it. Whoever does not get it, because a process holds it for long or the
    file system has no locks, writes without it: what is not written is lost for certain."""
    capsule = path.with_name(path.name.removesuffix(SUFFIX))
    with ExitStack() as stack:
        with suppress(OSError):
            descriptor = os.open(capsule if capsule.exists() else path.parent, os.O_RDONLY | os.O_CLOEXEC)
            stack.callback(os.close, descriptor)
            _take(descriptor, time.monotonic() + LOCK_BOUND_S)
        yield


def _take(descriptor: int, end_s: float) -> None:
    while time.monotonic() < end_s:
        try:
            return lock(descriptor)
        except BlockingIOError:
            time.sleep(_POLL_S)
    return None


def _changed(there: Kept, since: Kept, now: Kept) -> Kept:
    """`there`, with what a screen has changed. Breakpoints and watches stand together: the later ones are in place of
    the earlier."""
    moments = since.notes.keys() | now.notes.keys()
    mine = {moment for moment in moments if since.notes.get(moment) != now.notes.get(moment)}
    others = {moment: text for moment, text in there.notes.items() if moment not in mine}
    return Kept(
        notes=others | {moment: now.notes[moment] for moment in mine & now.notes.keys()},
        lines=there.lines if now.lines == since.lines else now.lines,
        panes=there.panes if now.panes == since.panes else now.panes,
        history=(*there.history, *_typed_since(since.history, now.history)),
    )


def _typed_since(since: tuple[str, ...], now: tuple[str, ...]) -> tuple[str, ...]:
    """Lines are added at the end, and from the start the oldest may have gone."""
    return next(now[kept:] for kept in range(len(now), -1, -1) if since[len(since) - kept :] == now[:kept])


def beside(capsule: Path) -> Path:
    """Of a capsule that is a folder or a packed file."""
    return capsule.with_name(f"{capsule.name}{SUFFIX}")


def lines_of(stops: tuple[BreakpointSpec, ...], watches: tuple[str, ...]) -> tuple[str, ...]:
    """They are carried out in a session that has none yet: its breakpoints get the numbers 1, 2, ..."""
    lines: list[str] = []
    number = 0
    for stop in stops:
        try:
            again = parse_breakpoint(stop.title)
        except PrismError:
            continue  # not one that can be typed
        if again.title != stop.title:
            continue
        number += 1
        lines.append(f"{Verb.TBREAK if stop.once else Verb.BREAK} {stop.title}")
        lines += [f"{Verb.IGNORE} {number} {stop.ignore}"] if stop.ignore else []
        lines += [f"{Verb.LOG_ONLY} {number} {stop.message}".rstrip()] if stop.log_only or stop.message else []
        lines += [f"{Verb.LOG_ONLY} {number}"] if stop.message and not stop.log_only else []
    return (*lines, *(f"{Verb.WATCH} {text}" for text in watches))


_RESTORED = (Verb.BREAK, Verb.TBREAK, Verb.IGNORE, Verb.LOG_ONLY, Verb.WATCH)


def _text_of(kept: Kept) -> str:
    """Without the oldest lines typed, as far as there is no room for them. `FacilityError` where it could not be read
    again."""
    if len(kept.notes) > MAX_NOTES:
        raise _too_much(f"have more than {MAX_NOTES} notes")
    history: list[str] = []
    room = MAX_BYTES - len(_written(kept, history))
    for line in reversed(kept.history[-MAX_LINES:]):
        room -= len(json.dumps(line)) + _AROUND_LINE
        if room < 0:
            break
        history.insert(0, line)
    text = _written(kept, history)
    if len(text) > MAX_BYTES:
        raise _too_much(f"be larger than {MAX_BYTES} bytes")
    return text


def _too_much(what: str) -> FacilityError:
    return FacilityError(
        f"notes and breakpoints cannot be saved: the file would {what}",
        hint="remove some of the notes, or write shorter ones",
    )


def _written(kept: Kept, history: list[str]) -> str:
    whole = {
        "version": VERSION,
        "notes": {str(moment): text for moment, text in sorted(kept.notes.items())},
        "lines": None if kept.lines is None else list(kept.lines),
        "panes": list(kept.panes),
        "history": history,
    }
    return f"{json.dumps(whole, indent=1)}\n"


def _kept(found: Any) -> Kept:
    if found["version"] != VERSION:
        raise ValueError(f"it has version {found['version']!r}, and this version reads {VERSION}")
    notes = {Moment.parse(moment): _text(text) for moment, text in found["notes"].items()}
    if len(notes) > MAX_NOTES:
        raise ValueError(f"it has more than {MAX_NOTES} notes")
    lines = None if found["lines"] is None else tuple(_text(line) for line in found["lines"][:MAX_LINES])
    if lines is not None and (wrong := next((line for line in lines if line.split(" ")[0] not in _RESTORED), None)):
        raise ValueError(f"{wrong[:80]!r} is neither a breakpoint nor a watch expression")
    panes = tuple(pane for pane in map(_text, found["panes"]) if pane in PANES)
    return Kept(notes=notes, lines=lines, panes=panes, history=tuple(map(_text, found["history"]))[-MAX_LINES:])


def _text(value: Any) -> str:
    if not isinstance(value, str) or len(value) > MAX_LINE:
        raise ValueError(f"{str(value)[:80]!r} is not a text of at most {MAX_LINE} characters")
    return value
