"""The debugger that a REPL, a screen and a script have in common: a line in, a typed answer out, notices meanwhile.

Decides nothing that the session can decide from values; renders nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Protocol

from prismdbg.capsule.capsule_dir import Capsule
from prismdbg.capsule.log.coverage import capsule_span
from prismdbg.capsule.manifest import IncidentKind, Origin
from prismdbg.capsule.stacks import capsule_stacks
from prismdbg.debugger.arrivals import Arrivals
from prismdbg.debugger.breakpoint_verbs import StopVerbs
from prismdbg.debugger.driver import Driver, Interrupted, Settings, Tell, Travel
from prismdbg.debugger.export_verb import ExportVerb
from prismdbg.debugger.history_queries import HistoryQueries
from prismdbg.debugger.inspection import Inspection
from prismdbg.debugger.known_names import known_names
from prismdbg.debugger.memory_verbs import MemoryVerbs
from prismdbg.debugger.navigation import Navigation
from prismdbg.debugger.recorded_nan import nan_since
from prismdbg.debugger.routes import Routes
from prismdbg.errors import Defect, PrismError, RankLost, UsageError, WaitTimeout
from prismdbg.jobs.capture.packed_memory import packed_trace
from prismdbg.jobs.replay.divergence import with_causes
from prismdbg.jobs.replay.silence import recorded_silence
from prismdbg.log.rank_log import read_log
from prismdbg.model.frame import Frame
from prismdbg.model.moment import Moment
from prismdbg.session import answers
from prismdbg.session.answers import Answer
from prismdbg.session.causes import Unhidden
from prismdbg.session.help import help_of
from prismdbg.session.known import NOTHING, Known
from prismdbg.session.line import Line, Verb, parse_line
from prismdbg.session.outside_collective import OutsideCollective
from prismdbg.session.recorded_hang import RecordedHang
from prismdbg.session.session import AROUND_LINES, Phase, Session
from prismdbg.session.trace_place import TracePlace

__all__ = ["Debugger", "Settings", "Travel"]

Json = dict[str, Any]


class Debugger:
    """One rank in one replay. `do` is called by one thread at a time; `interrupt` from any, or a signal handler.

    After `begin` the rank stands. Every `PrismError` but a lost rank is the caller's to show; a rank that is gone is
    told as a notice, the phase is LOST, and any way back brings it again.
    """

    def __init__(
        self,
        travel: Travel,
        tell: Tell,
        *,
        end_record: int | None = None,
        recorded: Sequence[Moment] = (),
        settings: Settings | None = None,
        how_it_ended: Callable[[], str] = lambda: "",
        arrivals: Arrivals | None = None,
        known: Callable[[], Known] = lambda: NOTHING,
        memory: Path | None = None,
        strict: bool = False,
        standing: OutsideCollective | None = None,
        hang: RecordedHang | None = None,
        nan: Moment | None = None,
        nan_since: int = 0,
    ) -> None:
        """`end_record`, `recorded`: B, and the capsule's moments (`recorded_moments`), where they are known.
        `arrivals`: of the other ranks, for `peers`. `known`: the names that stops are held against. `memory`: the
        capsule's own memory trace. `strict`: as `ReplayRequest` has it. `standing`, `hang`: as `Session` has them.
        `nan`: the one that the capsule was made for. nan_since: its step, where there are others before it."""
        self.session = Session(end_record, recorded, standing, hang)
        self.driver = Driver(travel, self.session, tell, settings or Settings(), how_it_ended)
        self.driver.strict = strict
        self.on_begin: Callable[[], None] = lambda: (
            None
        )  # called where an interrupt begins to be of what `do` was given
        routes = Routes(self.driver)
        self.inspection = Inspection(self.driver, routes.need_trace, arrivals)
        self.exports = ExportVerb(self.driver, self.inspection)
        self._navigation = Navigation(self.driver, self.inspection, routes)
        self._memory = MemoryVerbs(self.driver, routes, memory)
        self._verbs: dict[Verb, Callable[[Line], Answer]] = {
            **self._navigation.verbs(),
            **self.inspection.verbs(),
            **StopVerbs(self.driver, self.inspection, known).verbs(),
            **self._memory.verbs(),
            **self.exports.verbs(),
            **HistoryQueries(self.driver, self.inspection, routes, nan, nan_since).verbs(),
            Verb.HELP: help_of,
            Verb.QUIT: lambda _: answers.Ended(),
        }

    def begin(self) -> Answer:
        """Until the rank stands still for the first time."""
        return self._carry_out(self._navigation.begin)

    def do(self, text: str) -> Answer:
        """Carries out one line. `UsageError` and the like leave everything as it was."""
        line = parse_line(text)
        if line.verb not in self._verbs:
            raise UsageError(f"{line.verb} is not available in this replay", hint="type `help` to list what is")
        self.session.verb = str(line.verb)
        return self._carry_out(lambda: self._verbs[line.verb](line))

    def poll(self, timeout_s: float) -> None:
        """Takes in what the rank tells while nothing is asked of it: also a stopped one may die."""
        try:
            self.driver.pause_if_asked()
            self.driver.look_on()
            self.driver.take(self.driver.travel.client.next_event(timeout_s, "an event of the rank"))
        except WaitTimeout:
            return
        except RankLost as error:
            self.driver.lost(error)

    def interrupt(self) -> bool:
        """The rank stops at its next collective; twice: whoever waits gets the prompt back, the rank runs on. An answer
        is not waited for any more. Whether the rank is to stop."""
        stops = not self.driver.asks
        self.driver.interrupt()
        return stops

    def end(self) -> None:
        """Ends the rank."""
        self.driver.end()

    # what front ends show at a stop without being asked; each answer as the rank gives it

    def stack(self) -> answers.Stack:
        return self.inspection.stack()

    def source(self, line: int | None = None, around: int = AROUND_LINES) -> Json:
        return self.inspection.source(line, around)

    def evaluate(self, text: str) -> Json:
        return self.inspection.value(text)

    def local_names(self) -> tuple[Json, ...]:
        return self.inspection.local_names()

    def peers(self) -> Json:
        return self.inspection.peers()

    def tally(self) -> Json:
        return self.inspection.tally()

    def memory_place(self) -> TracePlace:
        return self._memory.place

    def choose_frame(self, outwards: int) -> answers.Stack:
        return self.inspection.choose_frame(outwards)

    def _carry_out(self, action: Callable[[], Answer]) -> Answer:
        self.driver.listen()
        self.on_begin()
        try:
            return action()
        except RankLost as error:
            self.driver.lost(error)
            return self.inspection.arrived()
        except Interrupted as given_up:
            if self.session.phase is not Phase.STOPPED:
                raise
            self.driver.say_cancelled(str(given_up))
            return self.inspection.arrived()
        except PrismError:
            raise
        except Exception as error:  # a verb's defect must not cost a rank that is fine
            raise Defect.of(error) from error


class Live(Travel, Protocol):
    """A capsule's replay, as `open_travel` gives it."""

    @property
    def capsule(self) -> Capsule: ...

    @property
    def end_record(self) -> int: ...

    @property
    def strict(self) -> bool: ...

    @property
    def unhidden(self) -> Unhidden: ...


def debug(
    travel: Live, tell: Tell, *, settings: Settings | None = None, how_it_ended: Callable[[], str] = lambda: ""
) -> Debugger:
    """The debugger of a capsule's replay, with all that the capsule and its run know."""
    incident = travel.capsule.manifest.incident
    made = Debugger(
        travel,
        tell,
        end_record=travel.end_record,
        recorded=recorded_moments(travel),
        settings=settings,
        how_it_ended=how_it_ended,
        arrivals=Arrivals.of_capsule(travel.capsule),
        known=cache(lambda: known_names(travel.capsule)),
        memory=packed_trace(travel.capsule),
        strict=travel.strict,
        standing=standing_of(travel),
        hang=hang_of(travel),
        nan=incident.moment if incident.kind is IncidentKind.NAN else None,
        nan_since=nan_since(travel.capsule),
    )
    made.exports.capsule = travel.capsule
    made.driver.explain = lambda story: with_causes(story, travel.capsule, travel.client, unhidden=travel.unhidden)
    return made


def standing_of(live: Live) -> OutsideCollective | None:
    """Of a rank that was captured at no collective, with nothing in flight, and that issued none after it."""
    capsule = live.capsule
    if capsule.manifest.origin is not Origin.IMAGE or recorded_moments(live) or capsule.rank().get("in_flight"):
        return None
    return OutsideCollective(rank=capsule.manifest.rank, frames=_recorded_frames(capsule))


def hang_of(live: Live) -> RecordedHang | None:
    """Of a rank whose capsule was made at a hang, which issued nothing more after all of its calls were answered; None
    where its log cannot be read."""
    capsule = live.capsule
    if capsule.manifest.incident.kind is not IncidentKind.HANG:
        return None
    try:
        log = read_log(capsule.log)
    except PrismError:
        return None
    span = capsule_span(capsule, log)
    if span.goes_on or not span.answered:
        return None
    silence = recorded_silence(capsule, log)
    return RecordedHang(
        rank=capsule.manifest.rank, bound_s=silence.bound_s, frames=_recorded_frames(capsule), grounds=str(silence)
    )


def _recorded_frames(capsule: Capsule) -> tuple[Frame, ...]:
    """Of the rank's main thread, where its stack was taken in production."""
    taken, rank = capsule_stacks(capsule), capsule.manifest.rank
    return taken.ranks[rank].frames if taken is not None and rank in taken.ranks else ()


def recorded_moments(live: Live) -> tuple[Moment, ...]:
    """The moments of the capsule's collectives from A to B, in order; empty where its log cannot be read."""
    first = live.capsule.rank().get("past_records", 0)
    try:
        records = read_log(live.capsule.log).collectives
    except PrismError:
        return ()
    return tuple(r.moment for r in records if first <= r.record_id <= live.end_record)
