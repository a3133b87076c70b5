"""A rank as a script drives it, and the debugger behind it."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

from prismdbg.debugger.debugger import Debugger
from prismdbg.debugger.driver import Interrupted
from prismdbg.errors import PrismError, UsageError, WaitTimeout
from prismdbg.model.breakpoints import StopReason, place_of
from prismdbg.model.moment import Moment
from prismdbg.protocol.client import NotWaitedFor
from prismdbg.script.findings import Past
from prismdbg.script.language import BackTo, GoBack
from prismdbg.session.answers import Allocated, Originated, Phase, Wrote
from prismdbg.session.breakpoints import BreakpointSpec
from prismdbg.session.session import Ask

Json = dict[str, Any]
AGAIN_S = 0.5
LONGER = "raise time_limit in the script, or --timeout"
LOOK_BOUND_S = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Stand:
    """Where a rank is and why. stops: the numbers of those that were hit."""

    phase: Phase
    moment: Moment
    reason: str = ""
    stops: tuple[int, ...] = ()

    @property
    def position(self) -> Moment:
        """As `Stopped.position` has it."""
        return place_of(self.moment, self.reason)


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What was found in the past, where the rank stands now; None where it was lost on the way."""

    stand: Stand
    answer: Past | None


class Rank(Protocol):
    """Asked by the runner alone, in this order: begin once, stops, then go and value by turns, at last find and
    value."""

    def begin(self, *, traced: bool) -> Stand:
        """`traced`: what happens between collectives is followed from here on."""

    def add_stop(self, spec: BreakpointSpec) -> int:
        """Its number, by which a stand names it."""

    def go(self, until: Moment | None) -> Stand:
        """To a stop, to the operator `until` or the first collective at or after it, or as far as it comes;
        `WaitTimeout` when the script's time is over."""

    def value(self, text: str) -> Json:
        """Of an expression where the rank stands, with `assumed` where it rests on synthesized peers; a `PrismError`
        says why it has none."""

    def find(self, asked: GoBack) -> Found:
        """Runs back, each time from where `go` came to at last; a `PrismError` says why there is no such place."""


class DebuggedRank:
    """`deadline_s` by the monotonic clock: then a run is broken off, also in the midst of a computation."""

    def __init__(self, debugger: Debugger, deadline_s: float) -> None:
        self._debugger = debugger
        self._deadline_s = deadline_s
        self._end: Moment | None = None

    def begin(self, *, traced: bool) -> Stand:
        self._debugger.begin()
        if traced:
            self._debugger.do("trace on")
        return self._stand()

    def add_stop(self, spec: BreakpointSpec) -> int:
        return self._debugger.session.breakpoints.add(spec).number

    def go(self, until: Moment | None) -> Stand:
        with self._bounded():
            self._debugger.do(f"until! {until}" if until is not None else "continue!")
        stand = self._stand()
        if stand.reason == StopReason.PAUSED:  # nobody but the bound asks for that
            raise self._over()
        return stand

    def value(self, text: str) -> Json:
        return self._debugger.evaluate(text)

    def find(self, asked: GoBack) -> Found:
        with self._bounded():
            self._back_to_end()
            answer = self._debugger.do(_question(asked))
        stand = self._stand()
        if isinstance(answer, Originated | Wrote | Allocated):
            return Found(stand=stand, answer=answer)
        if stand.phase is Phase.LOST:
            return Found(stand=stand, answer=None)
        raise self._over()  # it was given up

    def _back_to_end(self) -> None:
        """Where the program has ended or hangs, nothing is searched: the last place before that is the end."""
        session = self._debugger.session
        if session.phase is not Phase.STOPPED:
            self._debugger.do("reverse-next")
        self._end = self._end or session.position
        if session.position != self._end:
            self._debugger.do(f"goto {self._end}")

    def _stand(self) -> Stand:
        session = self._debugger.session
        stop = session.stop
        return Stand(
            phase=session.phase,
            moment=session.moment,
            reason=stop.reason if stop is not None else "",
            stops=stop.stops if stop is not None else (),
        )

    @contextmanager
    def _bounded(self) -> Iterator[None]:
        left_s = self._deadline_s - time.monotonic()
        if left_s <= 0:
            raise self._over()
        done = threading.Event()
        watch = threading.Thread(target=self._interrupt, args=(done, left_s), daemon=True)
        watch.start()
        try:
            yield
        except (Interrupted, NotWaitedFor):
            raise self._over() from None
        finally:
            done.set()
            watch.join()

    def _interrupt(self, done: threading.Event, left_s: float) -> None:
        """At first it may still come to a collective; then nobody waits for it."""
        while not done.wait(left_s):
            self._debugger.interrupt()
            left_s = AGAIN_S

    def _over(self) -> WaitTimeout:
        return WaitTimeout(
            f"the replay did not finish in time; it was at {self._reached()}",
            hint=LONGER,
        )

    def _reached(self) -> Moment:
        """As far as the rank can say: it may hold the interpreter's lock."""
        try:
            return Moment.parse(str(self._debugger.driver.ask(Ask("progress"), LOOK_BOUND_S)["moment"]))
        except PrismError:
            return self._debugger.session.moment


def _question(asked: GoBack) -> str:
    text = asked.of.text if asked.of is not None else ""
    words = {BackTo.ORIGIN: "origin", BackTo.WRITE: "who wrote", BackTo.ALLOCATION: "who allocated"}
    return f"{words[asked.to]} {text}".rstrip()


def refuse_outside(moment: Moment, first: Moment, last: Moment) -> None:
    """A script may ask only for what the capsule spans."""
    if moment < first:
        raise UsageError(
            f"{moment} is before the capsule's start moment, {first}", hint="give a moment inside the capsule"
        )
    if moment > last:
        raise UsageError(
            f"{moment} is after the capsule's end moment, {last}",
            hint="set `run_to` to a later moment to continue past it, with synthesized peers",
        )
