"""What a scripted replay found: each check with its outcome, each recorded value, and how the replay ended."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from prismdbg.model.moment import Moment
from prismdbg.script.language import BackTo, Expect, Forbid, Script
from prismdbg.session.answers import Allocated, Originated, Wrote
from prismdbg.session.frames import own_frame

Json = dict[str, Any]


class Outcome(StrEnum):
    HELD = "held"
    FAILED = "failed"
    UNDECIDED = "undecided"  # the replay was cut short before it could tell


class Ending(StrEnum):
    """How far the replay came."""

    NOT_STARTED = "not started"
    COMPLETE = "complete"  # to run_to, to B, or to the program's end
    DIVERGED = "diverged"
    INCONCLUSIVE = "inconclusive"  # it came to its end, and can be said neither to be identical nor to differ
    LOST = "rank lost"
    TIMEOUT = "out of time"
    BROKEN = "aborted"  # by an error, or from outside


@dataclass(slots=True, kw_only=True)
class Finding:
    """`text`: the expression; `hits`: how often it was looked at; `values`: of the names in it, where it failed.

    assumed: it rests on answers of synthesized peers. stop: where it failed at a stop, what that one is, as one would
    type it, behind the name that the script has for it.
    """

    kind: str
    title: str
    place: str
    text: str
    outcome: Outcome = Outcome.UNDECIDED
    moment: Moment | None = None
    hits: int = 0
    message: str = ""
    values: Mapping[str, str] = field(default_factory=dict)
    assumed: bool = False
    stop: str = ""

    def fail(self, moment: Moment | None, message: str) -> None:
        """The first failure stays."""
        if self.outcome is not Outcome.FAILED:
            self.outcome, self.moment, self.message = Outcome.FAILED, moment, message

    def to_json(self) -> Json:
        return {
            "kind": self.kind,
            "name": self.title,
            "place": self.place,
            "expression": self.text,
            "outcome": self.outcome,
            "moment": str(self.moment) if self.moment is not None else None,
            "hits": self.hits,
            "message": self.message,
            "values": dict(self.values),
            "assumed": self.assumed,
            "stop": self.stop,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedValue:
    """`value` as the rank rendered it; None where it has none, then `text` says why."""

    name: str
    moment: Moment
    text: str
    value: Json | None
    assumed: bool

    def to_json(self) -> Json:
        return {
            "name": self.name,
            "moment": str(self.moment),
            "text": self.text,
            "value": self.value,
            "assumed": self.assumed,
        }


Past = Originated | Wrote | Allocated


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundPlace:
    """A place in the past; `answer` is None where nothing was found, then `why` says so."""

    name: str
    to: BackTo
    answer: Past | None
    why: str = ""

    def to_json(self) -> Json:
        found: Json = {"name": self.name, "to": self.to, "moment": None, "op": None, "file": None, "line": None}
        if self.answer is None:
            return {**found, "why": self.why}
        frames = self.answer.frames
        own = frames[own_frame(frames)] if frames else None
        found |= {"moment": str(self.answer.moment), "op": self.answer.op or None, "why": ""}
        return found | ({"file": own.filename, "line": own.line} if own is not None else {})

    @property
    def text(self) -> str:
        """In one line, for machines: `11.0.9 aten::select.int train.py:28`."""
        found = self.to_json()
        if self.answer is None:
            return self.why
        line = f"{str(found['file']).rsplit('/', 1)[-1]}:{found['line']}" if found["file"] else ""
        return " ".join(part for part in (found["moment"], found["op"], line) if part)


@dataclass(slots=True)
class Findings:
    """Filled while the replay runs: whenever it is cut short, what is here is what is known."""

    checks: list[Finding] = field(default_factory=list)
    places: list[FoundPlace] = field(default_factory=list)
    records: list[RecordedValue] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    ending: Ending = Ending.NOT_STARTED
    reached: Moment | None = None
    cut_short: str = ""

    def announce(self, script: Script) -> None:
        """Every check, undecided yet: also a replay that never starts has its cases."""
        if not self.checks:
            self.checks += [_of("expect", entry, entry.that.text) for entry in script.expect]
            self.checks += [_of("forbid", e, e.when.text if e.when is not None else str(e.on)) for e in script.forbid]

    @property
    def failed(self) -> list[Finding]:
        return [check for check in self.checks if check.outcome is Outcome.FAILED]

    @property
    def undecided(self) -> list[Finding]:
        return [check for check in self.checks if check.outcome is Outcome.UNDECIDED]

    def close(self) -> None:
        """The replay is over. What was not reached failed if the replay was complete, else nobody knows. What is to
        hold until the end is not decided where the program ended before it."""
        if self.ending is not Ending.COMPLETE:
            return
        for check in self.undecided:
            if check.kind != "forbid" and not check.hits:
                check.fail(None, f"it was never checked: the replay ended at {self.reached}, before its place")
            elif not self.cut_short:
                check.outcome = Outcome.HELD


def _of(kind: str, entry: Expect | Forbid, text: str) -> Finding:
    return Finding(kind=kind, title=entry.title, place=str(entry.place), text=text)
