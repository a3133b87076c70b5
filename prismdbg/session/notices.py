"""What a replayed rank tells on its own, parsed once from the agent's events."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from prismdbg.errors import UsageError
from prismdbg.model.breakpoints import StopReason, place_of
from prismdbg.model.frame import Frame
from prismdbg.model.moment import Moment
from prismdbg.model.plain_text import one_line
from prismdbg.session.recorded_hang import RecordedHang

Json = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stopped:
    """`reason`: start, next, until, stop, paused, diverged, end of the log, ...; `collective` is empty at the start.

    number: the n-th stop of the rank, 0 where that is not known; told twice, it is one stop.
    stops: numbers of those that were hit; titles: what each is, as one would type it; ignored: what each of them still
    lets pass, by number.
    answered: the peers' answer is there; place: digests of everything up to here; hits: what was noted on the way.
    event: the n-th event since the last collective, 0 at one; events_before: how many there were before it, where they
    were counted; found: what a search in this run found: `writer`, `origin`.
    """

    reason: str
    moment: Moment
    number: int = 0
    collective: Json = field(default_factory=dict)
    stops: tuple[int, ...] = ()
    titles: tuple[str, ...] = ()
    ignored: dict[int, int] = field(default_factory=dict)
    answered: bool = True
    place: dict[str, str] = field(default_factory=dict)
    hits: tuple[Json, ...] = ()
    event: int = 0
    events_before: int = 0
    found: Json = field(default_factory=dict)

    @property
    def is_between(self) -> bool:
        """At an operator, an allocation or a free, not at a collective."""
        return "kind" in self.collective

    @property
    def position(self) -> Moment:
        """By this it is before or after other places."""
        return place_of(self.moment, self.reason)

    @property
    def side(self) -> str:
        """Two stops at one moment may lie before and after the answer, or later."""
        if self.reason == StopReason.EXCEPTION:
            return "raised"
        if self.event:
            return f"event {self.event}"
        return "answered" if self.answered else "asked"


@dataclass(frozen=True, slots=True, kw_only=True)
class Diverged:
    """This call is not the recorded one. A stop follows. `story` is the event as it came."""

    moment: Moment
    story: Json


@dataclass(frozen=True, slots=True, kw_only=True)
class Departed:
    """Here the rank left the record, in a replay in which it may: everything later is assumed. As `Diverged`, but the
    rank goes on. `story` has no differences where it was a peer that is assumed to send something else."""

    moment: Moment
    story: Json


@dataclass(frozen=True, slots=True, kw_only=True)
class Synthesized:
    """A peer's answer was synthesized: no recording of it exists."""

    moment: Moment
    op: str
    collective: Json = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Skipped:
    """A gradient scaler skipped the step of `moment`, off the record; the next step is `begun`. in_a_row: so many steps
    in which the same optimizer was due, with this one."""

    moment: Moment
    begun: int
    in_a_row: int


@dataclass(frozen=True, slots=True, kw_only=True)
class EndOfLog:
    """Everything recorded was replayed; a stop follows, and from then on peers are synthesized."""

    moment: Moment
    tally: Json


@dataclass(frozen=True, slots=True, kw_only=True)
class AllCompared:
    """The last recorded collective was compared and answered; the rank goes on."""

    moment: Moment
    tally: Json


@dataclass(frozen=True, slots=True, kw_only=True)
class StateCompared:
    """The parameters' hash where the record has one, too."""

    moment: Moment
    equal: bool
    expected: str
    actual: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramRaised:
    """An exception that nothing in the program caught. in_thread: it ends that thread alone."""

    moment: Moment
    kind: str
    text: str
    traceback: tuple[str, ...]
    in_thread: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """The program ended by itself. `hits`: what was noted on the way; an older rank does not tell them."""

    moment: Moment
    code: int
    tally: Json
    hits: tuple[Json, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Hit:
    """A stop that only tells was hit; the rank went on. `title`: the stop as one would type it. `message`: its text,
    whose expressions have these `values`."""

    moment: Moment
    stop: int
    title: str = ""
    collective: Json
    message: str = ""
    values: tuple[Json, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class BreakpointFailed:
    """A stop's condition could not be evaluated; told once, the rank went on. `title`: as of a hit."""

    moment: Moment
    stop: int
    title: str = ""
    error: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Unlike:
    """A place was reached again and is not as it was: the replay is not deterministic. `what` in words."""

    moment: Moment
    what: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Lost:
    """The rank or its place is gone; `restart` or any way back brings it again."""

    moment: Moment
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AtRecordedHang:
    """Everything recorded was replayed, up to `moment`; the rank is silent, and `hang` says until when it is waited
    for."""

    moment: Moment
    hang: RecordedHang


@dataclass(frozen=True, slots=True, kw_only=True)
class HangsAgain:
    """Everything recorded was replayed, up to `moment`, and then the rank issued nothing for as long as `hang` says.

    frames: of its main thread now, innermost first; empty where it could not be asked, and `why_not` says why. tally:
    what was compared. is_at_start: no collective lies between the start moment and here.
    """

    moment: Moment
    hang: RecordedHang
    is_at_start: bool = False
    frames: tuple[Frame, ...] = ()
    why_not: str = ""
    tally: Json = field(default_factory=dict)

    @property
    def known_frames(self) -> tuple[Frame, ...]:
        """Where it is now or, if that is not known, where it was recorded."""
        return self.frames or self.hang.frames

    @property
    def hint(self) -> str:
        back = "`restart` to go back to the start moment"
        if not self.is_at_start:
            back = "goto, reverse-next or restart to go back"
        return f"type `where` to see where, `continue` to wait longer, or {back}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """Of long work: `done` of `total` collectives where both are known (total 0: not known). passes: how often the rank
    was put back for it so far. most_passes: how often it will be at most; 0 where that is not known, as of a search
    between collectives, which goes on from what each pass finds."""

    text: str
    moment: Moment
    done: int = 0
    total: int = 0
    passes: int = 0
    most_passes: int = 0

    @property
    def which_pass(self) -> str:
        """`, pass 2 of at most 5`; empty in the first one."""
        if self.passes < 2:
            return ""
        return f", pass {self.passes}" + (f" of at most {self.most_passes}" if self.most_passes >= self.passes else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointMade:
    """A checkpoint of the rank was taken. `asked`: by a person, not by the spacing. again: in place of one of the same
    place and number, which is of no use any more. is_kept: none was taken, for one of this place is there."""

    number: int
    moment: Moment
    size_bytes: int
    cost_s: float
    asked: bool
    again: bool = False
    is_kept: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Returned:
    """The rank stands where a checkpoint was taken."""

    number: int
    moment: Moment


@dataclass(frozen=True, slots=True)
class Cancelled:
    """What was asked for was interrupted, and the rank stands where it came to: `origin was cancelled at 3.1`."""

    text: str


@dataclass(frozen=True, slots=True)
class Said:
    """Anything else worth a line."""

    text: str


Notice = (
    Stopped
    | Diverged
    | Departed
    | Synthesized
    | Skipped
    | EndOfLog
    | AllCompared
    | StateCompared
    | ProgramRaised
    | Finished
    | Hit
    | BreakpointFailed
    | Unlike
    | Lost
    | AtRecordedHang
    | HangsAgain
    | Progress
    | CheckpointMade
    | Returned
    | Cancelled
    | Said
)


def rank_says(text: str) -> str:
    """A note of the rank's as a line of ours."""
    return one_line(f"the rank says: {text}")


def parse_notice(event: Json) -> Notice:
    """An event of a newer agent that is not known here becomes a line."""
    try:
        return _parse(event)
    except (KeyError, TypeError, ValueError, UsageError) as error:
        return Said(f"the rank sent an unknown event: {event.get('event')!r} ({error})")


def _parse(event: Json) -> Notice:
    moment = Moment.parse(str(event["moment"])) if "moment" in event else Moment(0)
    match event["event"]:
        case "stopped":
            return parse_stop(event, str(event["reason"]))
        case "diverged":
            return Diverged(moment=moment, story=event)
        case "departed":
            return Departed(moment=moment, story=event)
        case "synthesized":
            collective = event["collective"]
            return Synthesized(
                moment=moment,
                op=str(collective.get("profiling_name", collective.get("op", ""))),
                collective=dict(collective),
            )
        case "skipped":
            return Skipped(moment=moment, begun=int(event["begun"]), in_a_row=int(event["in_a_row"]))
        case "end_of_log":
            return EndOfLog(moment=moment, tally=dict(event["tally"]))
        case "state":
            expected, actual = str(event["expected"]), str(event["actual"])
            return StateCompared(moment=moment, equal=bool(event["equal"]), expected=expected, actual=actual)
        case "exception":
            traceback = tuple(str(line) for line in event["traceback"])
            return ProgramRaised(
                moment=moment,
                kind=str(event["type"]),
                text=str(event["text"]),
                traceback=traceback,
                in_thread=bool(event.get("thread")),
            )
        case "all_compared":
            return AllCompared(moment=moment, tally=dict(event["tally"]))
        case "finished":
            return Finished(
                moment=moment,
                code=int(event["code"]),
                tally=dict(event["tally"]),
                hits=tuple(dict(hit) for hit in event.get("hits", ())),
            )
        case "hit":
            return Hit(
                moment=moment,
                stop=int(event["stop"]),
                collective=dict(event["collective"]),
                values=tuple(dict(value) for value in event.get("values", ())),
            )
        case "stop_failed":
            return BreakpointFailed(moment=moment, stop=int(event["stop"]), error=str(event["error"]))
        case "note":
            return Said(rank_says(str(event["text"])))
        case other:
            return Said(f"event {other!r}")


def parse_stop(event: Json, reason: str) -> Stopped:
    """A `stopped` event, or the answer to `progress` while the rank stands."""
    return Stopped(
        reason=reason,
        moment=Moment.parse(str(event["moment"])),
        number=int(event.get("number", 0)),
        collective=dict(event.get("collective", {})),
        stops=tuple(int(number) for number in event.get("stops", ())),
        ignored={int(number): int(left) for number, left in dict(event.get("ignored", {})).items()},
        answered=bool(event.get("answered", True)),
        place={str(name): str(digest) for name, digest in dict(event.get("place") or {}).items()},
        hits=tuple(dict(hit) for hit in event.get("hits", ())),
        event=int(event.get("events", 0)),
        events_before=int(event.get("events_before", 0)),
        found={name: dict(event[name]) for name in ("writer", "origin") if event.get(name)},
    )
