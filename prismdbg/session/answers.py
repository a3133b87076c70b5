"""What a verb answers, as values; a front end makes text or widgets of them. Parts that a rank rendered stay JSON."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from prismdbg.model.collective import Frame
from prismdbg.model.moment import Moment
from prismdbg.session.breakpoints import BreakpointSpec
from prismdbg.session.checkpoint import Checkpoint
from prismdbg.session.line import Verb
from prismdbg.session.notices import Finished, Stopped
from prismdbg.session.watches import Watched

Json = dict[str, Any]


class Phase(StrEnum):
    RUNNING = "running"
    STOPPED = "stopped"
    FINISHED = "finished"
    LOST = "lost"
    HUNG = "hung"  # again, as it was recorded: it runs, but issues nothing more


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrived:
    """After every verb that moves. `stop`: where the rank stands; None where it runs, has ended or is gone.

    beginning: it went back as far as the capsule goes. watched: every watch's value here.
    """

    phase: Phase
    moment: Moment
    stop: Stopped | None = None
    beginning: bool = False
    watched: tuple[Watched, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Value:
    """`only_stats`: the values themselves are not asked for."""

    text: str
    value: Json
    only_stats: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Stack:
    """`note`: what stack it is, where it is not the one of the place where the rank stands."""

    frames: tuple[Frame, ...]
    chosen: int
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    source: Json


@dataclass(frozen=True, slots=True, kw_only=True)
class Names:
    names: tuple[Json, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Peers:
    peers: Json


@dataclass(frozen=True, slots=True, kw_only=True)
class Info:
    """`tally`: empty where the rank hangs and cannot say it."""

    phase: Phase
    moment: Moment
    tally: Json
    stop: Stopped | None = None
    finished: Finished | None = None
    visited: tuple[Moment, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class BreakpointTable:
    """`hits` by number. `said`: what was done, where something was changed."""

    stops: tuple[BreakpointSpec, ...]
    hits: dict[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class BreakpointSet:
    """A stop was made or changed; removed where `gone`."""

    stop: BreakpointSpec
    gone: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchTable:
    watched: tuple[Watched, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointTable:
    """`here`: the moment now. `why_none`: why no checkpoints can be taken, where they cannot."""

    checkpoints: tuple[Checkpoint, ...]
    here: Moment
    why_none: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wrote:
    """Who changed a value last before the place where it was asked for; the rank stands at the change now.

    asked_at: there, and so of the others. after: the last collective at which the value was still the old one.
    op: the operator, empty where only the collective it came by is known. exact: found between two operators, not
    only between two collectives.
    """

    asked_at: Moment
    text: str
    moment: Moment
    after: Moment | None
    op: str
    frames: tuple[Frame, ...]
    exact: bool
    stop: Stopped | None
    watched: tuple[Watched, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Allocated:
    """Who allocated the block that holds a tensor. `before`: it is older than the capsule, no more is known."""

    asked_at: Moment
    text: str
    moment: Moment
    op: str
    size_bytes: int
    frames: tuple[Frame, ...]
    before: bool
    stop: Stopped | None
    watched: tuple[Watched, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Originated:
    """Where the first NaN or infinity came from. born: its inputs were all finite; else it came in from outside.

    seen_at: the first collective that sent or received one.
    """

    asked_at: Moment
    moment: Moment
    op: str
    born: bool
    what: str
    seen_at: Moment
    frames: tuple[Frame, ...]
    exact: bool
    stop: Stopped | None
    watched: tuple[Watched, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Differs:
    """A tensor of the stopped collective against the recorded bytes. `value`: the difference, as rendered."""

    text: str
    equal: bool
    differing: int
    elements: int
    largest: float | None
    value: Json | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """`answer`: Live, Peak, Difference or Curve of `prismdbg.memory`, None where nothing was traced; `by`: how its
    blocks are to be grouped (`prismdbg.memory.grouping.By`); `moment`: of a Live."""

    answer: Any
    by: str
    moment: Moment


@dataclass(frozen=True, slots=True, kw_only=True)
class Help:
    """`more`: in lines, what does not fit into one."""

    verbs: tuple[Verb, ...]
    more: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """In words; nothing more to show."""

    what: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """`quit`."""


Answer = (
    Arrived
    | Value
    | Stack
    | Source
    | Names
    | Peers
    | Info
    | BreakpointTable
    | BreakpointSet
    | WatchTable
    | CheckpointTable
    | Wrote
    | Allocated
    | Originated
    | Differs
    | Memory
    | Help
    | Done
    | Ended
)
