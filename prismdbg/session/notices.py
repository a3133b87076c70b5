"""What a replayed rank tells on its own, parsed once from the agent's events."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from prismdbg.errors import UsageError
from prismdbg.model.moment import Moment

Json = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stopped:
    """`reason`: start, next, until, paused, diverged, end of the log, ...; `collective` is empty at the start.

    number: the n-th stop of the rank, 0 where that is not known; told twice, it is one stop.
    """

    reason: str
    moment: Moment
    number: int = 0
    collective: Json = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Diverged:
    """This call is not the recorded one. A stop follows. `story` is the event as it came."""

    moment: Moment
    story: Json


@dataclass(frozen=True, slots=True, kw_only=True)
class Synthesized:
    """A peer's answer was made up, for nothing was recorded."""

    moment: Moment
    op: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EndOfLog:
    """Everything recorded was replayed; a stop follows, and from then on peers are synthesized."""

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
    """An exception that nothing in the program caught."""

    moment: Moment
    kind: str
    text: str
    traceback: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """The program ended by itself."""

    moment: Moment
    code: int
    tally: Json


@dataclass(frozen=True, slots=True)
class Said:
    """Anything else worth a line."""

    text: str


Notice = Stopped | Diverged | Synthesized | EndOfLog | StateCompared | ProgramRaised | Finished | Said


def parse_notice(event: Json) -> Notice:
    """An event of a newer agent that is not known here becomes a line."""
    try:
        return _parse(event)
    except (KeyError, TypeError, ValueError, UsageError) as error:
        return Said(f"the rank sent an event that is not understood: {event.get('event')!r} ({error})")


def _parse(event: Json) -> Notice:
    moment = Moment.parse(str(event["moment"])) if "moment" in event else Moment(0)
    match event["event"]:
        case "stopped":
            number, collective = int(event.get("number", 0)), dict(event["collective"])
            return Stopped(reason=str(event["reason"]), moment=moment, number=number, collective=collective)
        case "diverged":
            return Diverged(moment=moment, story=event)
        case "synthesized":
            collective = event["collective"]
            return Synthesized(moment=moment, op=str(collective.get("profiling_name", collective.get("op", ""))))
        case "end_of_log":
            return EndOfLog(moment=moment, tally=dict(event["tally"]))
        case "state":
            expected, actual = str(event["expected"]), str(event["actual"])
            return StateCompared(moment=moment, equal=bool(event["equal"]), expected=expected, actual=actual)
        case "exception":
            traceback = tuple(str(line) for line in event["traceback"])
            return ProgramRaised(moment=moment, kind=str(event["type"]), text=str(event["text"]), traceback=traceback)
        case "finished":
            return Finished(moment=moment, code=int(event["code"]), tally=dict(event["tally"]))
        case "note":
            return Said(str(event["text"]))
        case other:
            return Said(f"event {other!r}")
