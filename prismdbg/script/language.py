"""What a script can say. These classes are the language: the reader and the published schema are made from them.

A field with a text beside its type is a key, and the text says what it means.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Annotated

from prismdbg.expr.parser import Expression
from prismdbg.model.breakpoints import BreakpointKind
from prismdbg.model.moment import Moment
from prismdbg.script.place import Place

END = "end"
MAX_SECONDS = 7 * 24 * 3600.0


CALLED = {"since": "from"}  # where Python has other ideas of a name


@dataclass(frozen=True, slots=True)
class Seconds:
    """More than 0, at most a week."""

    value: float


@dataclass(frozen=True, slots=True)
class Count:
    """A whole number from 0."""

    value: int


@dataclass(frozen=True, slots=True)
class Name:
    """A word or a few, beginning with a letter."""

    text: str


@dataclass(frozen=True, slots=True)
class SourceLine:
    """`train.py:61`: a file by its last parts, and a line."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


@dataclass(frozen=True, slots=True)
class When:
    """A moment, the name of a stop (then at each of its hits) or of a place gone back to, or `end`."""

    text: str
    moment: Moment | None = None
    place: Place | None = field(default=None, compare=False)


ZERO, START, AN_HOUR = Count(0), Moment(0), Seconds(3600.0)


class Answers(StrEnum):
    """What an assumed peer sends."""

    ECHO = "echo"  # what this rank sends
    ZEROS = "zeros"
    NOISE = "noise"  # normal, as wide as what this rank sends


@dataclass(frozen=True, slots=True, kw_only=True)
class StopAt:
    """A place to look at: `expect` and `record` may name it. All that is given must hold."""

    place: Place
    name: Annotated[Name, "what `at` refers to"]
    on: Annotated[BreakpointKind, "the event that it waits for"] = BreakpointKind.COLLECTIVE
    op: Annotated[str, "the operator's name: all_reduce"] = ""
    group: Annotated[str, "the group's name or title: world, dp"] = ""
    seq: Annotated[Count | None, "the sequence number within the group"] = None
    line: Annotated[SourceLine | None, "the source line that issues it: train.py:61"] = None
    module: Annotated[str, "the module it is issued in: layers.3.attention"] = ""
    peer: Annotated[Count | None, "the rank that takes part (`on: peer`)"] = None
    value: Annotated[Expression | None, "the expression whose change is waited for (`on: change`)"] = None
    when: Annotated[Expression | None, "a condition over the event: bytes > 1e6 and nan(out)"] = None
    ignore: Annotated[Count, "number of hits to ignore first"] = ZERO
    once: Annotated[bool, "stop only at the first hit"] = False


class BackTo(StrEnum):
    """What is looked for in the past."""

    ORIGIN = "origin"  # where the first NaN or infinity came from
    WRITE = "write"  # what wrote a value last
    ALLOCATION = "allocation"  # what allocated its memory


@dataclass(frozen=True, slots=True, kw_only=True)
class GoBack:
    """A place in the past. Once the replay has come to its end the rank is run back to it; `expect` and `record` may
    name it."""

    place: Place
    name: Annotated[Name, "what `at` refers to"]
    to: Annotated[BackTo, "the origin of the first NaN or infinity, or the last write or the allocation of a value"]
    of: Annotated[Expression | None, "the value; optional for an origin, which then covers all data sent"] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Expect:
    """An expression that must be true."""

    place: Place
    that: Annotated[Expression, "the condition, over the names of the event: finite(out), local.loss < 6"]
    at: Annotated[
        When, "a moment, the name of a breakpoint (each hit; at least one required) or of a back_to place, or end"
    ]
    name: Annotated[str, "its name in reports; default: the expression"] = ""

    @property
    def title(self) -> str:
        return self.name or self.that.text


@dataclass(frozen=True, slots=True, kw_only=True)
class Forbid:
    """What must never happen. It is looked for at every event of its kind."""

    place: Place
    on: Annotated[BreakpointKind, "the kind of event"] = BreakpointKind.COLLECTIVE
    when: Annotated[Expression | None, "the condition; optional for exception and nan"] = None
    name: Annotated[str, "its name in reports; default: the condition"] = ""

    @property
    def title(self) -> str:
        return self.name or f"never {self.when.text if self.when is not None else self.on}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """A value for the report."""

    place: Place
    name: Annotated[str, "its name in the report"]
    value: Annotated[Expression, "the value, over the names of the event: out[0], local.loss"]
    at: Annotated[When, "a moment, the name of a breakpoint (each hit) or of a back_to place, or end"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Assume:
    """What if peers had sent something else, come late, or never come?

    A collective is answered as if each chosen rank sent what is assumed, and of a sum the others what this rank sends.
    From the first such answer on nothing recorded is used any more: peers are synthesized, and every value marked so.
    """

    place: Place
    since: Annotated[Moment, "from this moment on"] = START
    until: Annotated[Moment | None, "before this moment; default: no end"] = None
    ranks: Annotated[tuple[Count, ...], "the peers' ranks; default: all"] = ()
    group: Annotated[str, "only in this group: its name or title"] = ""
    answer: Annotated[Answers | None, "what they send; default: as recorded"] = None
    seed: Annotated[Count, "seed of the noise: the same seed gives the same values"] = ZERO
    late: Annotated[Seconds | None, "delay of each answer, in seconds; beyond the timeout, the collective fails"] = None
    missing: Annotated[bool, "they never come: the collective fails with a timeout"] = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """Expectations about one replay of one rank."""

    place: Place
    time_limit: Annotated[Seconds, "time limit of the whole replay, in seconds"] = AN_HOUR
    run_to: Annotated[Moment | None, "where the replay ends; default: the capsule's end moment"] = None
    peers: Annotated[tuple[Assume, ...], "assumptions about peers that differ from the recording"] = ()
    stop_at: Annotated[tuple[StopAt, ...], "named breakpoints"] = ()
    back_to: Annotated[
        tuple[GoBack, ...], "named places in the past, searched backwards from the end of the replay"
    ] = ()
    expect: Annotated[tuple[Expect, ...], "conditions that must be true"] = ()
    forbid: Annotated[tuple[Forbid, ...], "events that must never happen"] = ()
    record: Annotated[tuple[Record, ...], "values for the report"] = ()


NO_SCRIPT = Script(place=Place("", 0, 0))
