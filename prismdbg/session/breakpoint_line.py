"""What is typed after `break`, read into a stop: `all_reduce on dp if bytes > 1e6`, `train.py:73`.

break [OP] [on GROUP] [#SEQ] [FILE:LINE] [in MODULE] [MOMENT] [if CONDITION]
break exception | nan | divergence | peer RANK | allocation [OP] | change EXPRESSION   ... [if CONDITION]
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from prismdbg.capsule.manifest import IncidentKind
from prismdbg.errors import UsageError, quoted, shortened
from prismdbg.expr.parser import parse
from prismdbg.expr.place import complaint
from prismdbg.model.breakpoints import BreakpointKind
from prismdbg.model.moment import Moment
from prismdbg.model.ops import OPS
from prismdbg.session.breakpoints import BreakpointSpec
from prismdbg.session.line import Verb

LABELS = tuple(sorted({spec.label for spec in OPS.values()}))
EXAMPLE = "write for instance: break all_reduce on dp if bytes > 1MB"

_FILE = re.compile(r"(.+):([0-9]+)")
MAX_WORD = 200
MAX_DIGITS = 9
_KINDS = {
    "exception": BreakpointKind.EXCEPTION,
    "nan": BreakpointKind.NAN,
    "inf": BreakpointKind.NAN,
    "nonfinite": BreakpointKind.NAN,
    "divergence": BreakpointKind.DIVERGENCE,
    "diverged": BreakpointKind.DIVERGENCE,
    "peer": BreakpointKind.PEER,
    "alloc": BreakpointKind.ALLOCATION,
    "allocation": BreakpointKind.ALLOCATION,
    "change": BreakpointKind.CHANGE,
}


def parse_breakpoint(text: str) -> BreakpointSpec:
    """`UsageError` with a caret under what is wrong; conditions are read here, not at the stop."""
    head, condition = _split(text)
    if condition:
        _parse_part(text, condition)
    if not head and not condition:
        raise UsageError("break needs a place", hint=EXAMPLE)
    first, _, rest = head.partition(" ")
    kind = _KINDS.get(first)
    if kind is BreakpointKind.CHANGE:
        if not rest.strip():
            raise UsageError(
                "break change needs an expression", hint="write for instance: break change model.head.weight"
            )
        _parse_part(text, rest.strip())
        require_change(rest.strip())
        return BreakpointSpec(kind=kind, expression=rest.strip(), condition=condition)
    words = (rest if kind else head).split()
    return _Words(text, kind or BreakpointKind.COLLECTIVE, words).read(condition)


def require_change(text: str) -> None:
    """`UsageError` for an expression that has one value for ever."""
    if not parse(text).names:
        raise UsageError(
            f"{shortened(text)} never changes: it contains no name",
            hint="write for instance: break change model.head.weight",
        )


def _split(text: str) -> tuple[str, str]:
    found = re.search(r"(?:^|\s)if(?:\s|$)", text)
    if found is None:
        return text.strip(), ""
    condition = text[found.end() :].strip()
    if not condition:
        raise complaint(text, len(text), "a condition is missing after if", hint=EXAMPLE)
    return text[: found.start()].strip(), condition


def _parse_part(text: str, part: str) -> None:
    """Reads an expression that is a part of the line; a complaint shows that part."""
    if not part:
        raise complaint(text, len(text), "an expression is missing", hint=EXAMPLE)
    parse(part)


class _Words:
    def __init__(self, text: str, kind: BreakpointKind, words: list[str]) -> None:
        self._text, self._kind, self._words = text, kind, words
        self._found: dict[str, Any] = {}

    def read(self, condition: str) -> BreakpointSpec:
        if self._kind is BreakpointKind.PEER:
            self._found["peer"] = self._number(self._after("peer"), "a rank")
        for word in self._words:
            if len(word) > MAX_WORD:
                raise complaint(self._text, self._text.find(word), f"a word here has at most {MAX_WORD} characters")
        while self._words:
            self._one(self._words.pop(0))
        return BreakpointSpec(kind=self._kind, condition=condition, **self._found)

    def _one(self, word: str) -> None:
        takers: dict[str, Callable[[], None]] = {
            "on": lambda: self._put("group", self._after("on")),
            "in": lambda: self._put("module", self._after("in")),
            "peer": lambda: self._put("peer", self._number(self._after("peer"), "a rank")),
            "seq": lambda: self._put("seq", self._number(self._after("seq"), "a sequence number")),
        }
        if word in takers:
            takers[word]()
        elif word.startswith("#"):
            self._put("seq", self._number(word[1:], "a sequence number"))
        elif place := _FILE.fullmatch(word):
            self._put("file", place.group(1))
            self._put("line", self._line(place.group(2)))
        elif word[0].isdigit():
            self._put("moment", replace(Moment.parse(word), op=0))
        else:
            self._put("op", self._op(word))

    def _after(self, word: str) -> str:
        if not self._words:
            raise complaint(self._text, len(self._text), f"{quoted(word)} needs an argument", hint=EXAMPLE)
        return self._words.pop(0)

    def _line(self, text: str) -> int:
        line = self._number(text, "a line")
        if not line:
            raise complaint(self._text, self._text.find(f":{text}") + 1, "0 is not a line", hint="count lines from 1")
        return line

    def _put(self, name: str, value: Any) -> None:
        if name in self._found:
            raise UsageError(f"{name} is given twice", hint=EXAMPLE)
        self._found[name] = value

    def _number(self, text: str, what: str) -> int:
        if not (text.isascii() and text.isdigit() and len(text) <= MAX_DIGITS):
            raise complaint(self._text, max(self._text.find(text), 0), f"{quoted(text)} is not {what}", hint=EXAMPLE)
        return int(text)

    def _op(self, word: str) -> str:
        """Collectives are known by name; operators of allocations (aten::mm) are not."""
        if self._kind is BreakpointKind.ALLOCATION or word in LABELS:
            return word
        if word in OPS:
            return OPS[word].label
        near = difflib.get_close_matches(word, [*LABELS, *_KINDS], 1)
        hint = f"use {near[0]}, if you mean that" if near else f"use one of: {' '.join(LABELS)}"
        if word in _KINDS:
            hint = f"write {word} first and only once: break {word}"
        raise complaint(self._text, max(self._text.find(word), 0), f"unknown collective {quoted(word)}", hint=hint)


def first_breakpoints(incident: IncidentKind, nan_since: int = 0) -> tuple[str, ...]:
    """The lines a session begins with, so that `continue` comes to what the capsule was made for. nan_since: the step
    of its NaN, where there are others before it."""
    what = _INCIDENT_STOPS.get(incident)
    since = f" if step >= {nan_since}" if what is BreakpointKind.NAN and nan_since else ""
    return (f"{Verb.BREAK} {what}{since}",) if what is not None else ()


_INCIDENT_STOPS = {
    IncidentKind.NAN: BreakpointKind.NAN,
    IncidentKind.EXCEPTION: BreakpointKind.EXCEPTION,
    IncidentKind.OUT_OF_MEMORY: BreakpointKind.EXCEPTION,
}
