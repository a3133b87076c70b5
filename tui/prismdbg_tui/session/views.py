"""What the panes show, as values: made by workers, carried by messages, never changed."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from prismdbg.errors import Divergence, RankLost
from prismdbg.model.breakpoints import AT_NO_EVENT, place_of
from prismdbg.model.collective import Frame
from prismdbg.model.moment import Moment
from prismdbg.model.plain_text import one_line, plain
from prismdbg.session.answers import Differs
from prismdbg.session.breakpoints import BreakpointSpec
from prismdbg.session.checkpoint import Checkpoint
from prismdbg.session.trace_place import TracePlace
from prismdbg.session.watches import Watched

Json = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceView:
    """Lines around where a frame stands. `note` says where they come from, or why there are none."""

    filename: str = ""
    function: str = ""
    line: int = 0
    first: int = 1
    lines: tuple[str, ...] = ()
    note: str = ""


@dataclass(frozen=True, slots=True)
class ValueView:
    """A value as an agent renders it, under the name it was asked by, and how it differs from the recorded one.
    of_call: what the collective takes or gives; nobody asked for it. again: asked for at an earlier stop."""

    title: str
    value: Json
    differs: Differs | None = None
    of_call: bool = False
    again: bool = False


class Phase(StrEnum):
    """Of the whole screen: a session's phases, and before and without one."""

    LOOKING = "read-only"
    STARTING = "starting"
    RUNNING = "running"
    RUNS_ON = "still running"  # and nobody waits for it
    STOPPED = "stopped"
    FINISHED = "finished"
    LOST = "lost"
    HUNG = "hung"


BUSY = (Phase.STARTING, Phase.RUNNING)


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """Where the rank is and everything that was asked of it there. `since`: monotonic seconds of the phase's begin.

    doing: what takes its time, `done` of `total` of it where that is known. hit_here: the stops that were hit here,
    why: what these are. found: what the search that came here found, or the watch that was added; found_shorter: the
    same in fewer words. cancelled: what was cancelled here, and where that is. before: where it stood before it came
    here.
    """

    phase: Phase = Phase.LOOKING
    moment: Moment = field(default_factory=lambda: Moment(0))
    reason: str = ""
    runtime: str = ""
    doing: str = ""
    done: int = 0
    total: int = 0
    since_s: float = 0.0
    collective: Json = field(default_factory=dict)
    frames: tuple[Frame, ...] = ()
    frame: int = 0
    source: SourceView = SourceView()
    values: tuple[ValueView, ...] = ()
    names: tuple[Json, ...] = ()
    peers: Json = field(default_factory=dict)
    tally: Json = field(default_factory=dict)
    first_record: int = 0
    diverged: frozenset[Moment] = frozenset()
    synthesized: frozenset[Moment] = frozenset()
    stops: tuple[BreakpointSpec, ...] = ()
    hits: dict[int, int] = field(default_factory=dict)
    hit_here: tuple[int, ...] = ()
    why: str = ""
    before: Moment | None = None
    watches: tuple[Watched, ...] = ()
    checkpoints: tuple[Checkpoint, ...] = ()
    trace: TracePlace = field(default_factory=TracePlace)
    story: str = ""
    found: str = ""
    found_shorter: tuple[str, ...] = ()
    cancelled: str = ""
    lost_because: str = ""
    is_cancelled: bool = False  # the start was: no rank is there, and it can be started
    can_look: bool = False
    differs: bool = False

    @property
    def position(self) -> Moment:
        """As `Session.position` has it."""
        if self.phase in (Phase.FINISHED, Phase.HUNG, Phase.LOST):
            return self.moment.end
        return place_of(self.moment, self.reason)

    @property
    def is_outside(self) -> bool:
        """The rank is outside of its collectives, and `frames` says where: it hangs there, or was captured there."""
        runs = self.phase in (Phase.RUNNING, Phase.RUNS_ON)
        is_captured = runs or (self.phase is Phase.STOPPED and self.reason not in AT_NO_EVENT)
        return not self.can_look and not self.doing and (self.phase is Phase.HUNG or is_captured)

    @property
    def exit_code(self) -> int:
        """As the command line has it: a divergence and a lost rank are told to whoever started this."""
        if self.diverged or self.differs:
            return Divergence.exit_code
        return RankLost.exit_code if self.phase is Phase.LOST else 0

    @property
    def why_exit_code(self) -> str:
        """One line for the terminal that the screen leaves; empty where the code is 0."""
        if self.diverged or self.differs:
            return "the replay differs from the recording"
        if self.phase is not Phase.LOST:
            return ""
        why = one_line(plain(self.lost_because.partition("\n")[0]))
        return why if self.is_cancelled else f"the rank is lost: {why}" if why else "the rank is lost"
