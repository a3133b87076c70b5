"""One rank driven for a session: requests sent, events taken in, returns carried out.

Knows no verb. One thread at a time; `interrupt` from any.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from prismdbg.debugger.checkpoint_keeper import CheckpointKeeper, Tell, Travel
from prismdbg.errors import FacilityError, PrismError, RankLost, WaitTimeout
from prismdbg.expr.place import complaint
from prismdbg.jobs.injection import cache_dir
from prismdbg.model.breakpoints import StopReason
from prismdbg.model.frame import Frame
from prismdbg.model.moment import Moment
from prismdbg.protocol.client import AgentError
from prismdbg.protocol.values import MAIN_THREAD
from prismdbg.protocol.wire import InvalidMessage
from prismdbg.session import notices
from prismdbg.session.breakpoints import BreakpointSpec
from prismdbg.session.frames import frames_of
from prismdbg.session.interrupted import Interrupted
from prismdbg.session.notices import Notice, Stopped
from prismdbg.session.recorded_hang import RecordedHang
from prismdbg.session.session import RUNS_ON_HINT, Ask, Phase, Session

__all__ = ["Driver", "Interrupted", "Settings", "Tell", "Travel"]

LOOK_S = 0.2
PROGRESS_S = 1.0
RUNNING = "running"  # what progress says where the rank only runs
ANSWER_BOUND_S = 90.0
END_BOUND_S = 5.0
MAX_NOTED = 100_000  # a rank keeps 1000 of them itself
CANNOT_TRACE = "events between collectives cannot be traced"
MADE_EVENTS = (StopReason.DIVERGED, StopReason.EXCEPTION, StopReason.END_OF_LOG)
_SAYS_HOW_FAR = (
    Stopped,
    notices.AllCompared,
    notices.Departed,
    notices.Hit,
    notices.ProgramRaised,
    notices.StateCompared,
    notices.Synthesized,
)

Json = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """bound_s: how long the rank may run without another collective. spacing_s: replay time between checkpoints, at
    least three times what one costs. most, most_bytes: of checkpoints kept."""

    bound_s: float = 600.0
    spacing_s: float = 1.0
    most: int = 24
    most_bytes: int = 16 << 30
    checkpoints: bool = True


@dataclass(slots=True)
class Run:
    """What one run to a stop is about. silent: it goes over places that were told about already. checkpoints: some may
    be taken on the way."""

    target: Moment | None = None
    silent: bool = False
    checkpoints: bool = True
    noted: list[Json] = field(default_factory=list)
    said_that_it_waits: bool = False
    pauses: bool = False  # at its next collective, as was asked for
    hangs_till_s: float = 0.0  # of silence: it is where the recording hangs, and nothing else is expected of it

    def note(self, hits: Sequence[Json]) -> None:
        if len(self.noted) + len(hits) > MAX_NOTED:
            raise InvalidMessage(f"the rank reported more than {MAX_NOTED} hits of breakpoints in one command")
        self.noted.extend(hits)


class Driver:
    def __init__(
        self, travel: Travel, session: Session, tell: Tell, settings: Settings, how_it_ended: Callable[[], str]
    ) -> None:
        self.travel = travel
        self.session = session
        self.strict = False
        self.traces = False
        self.asks = False  # a question, at this moment
        self.switched_off = False  # by who debugs: where it is needed again, that is said
        self.explain: Callable[[Json], Json] = lambda story: story  # adds likely causes to a divergence
        self._tell = tell
        self._settings = settings
        self._how_it_ended = how_it_ended
        self._stops_sent: list[Json] = []
        self._interrupts = 0
        self._put_back = 0  # how often the rank was put back for this command
        self._most_put_back = 0  # how often it will be at most, where that is known
        self._end: tuple[Moment, object] | None = None  # of the program, as it was told last
        self._left: _Patience | None = None  # with the rank that is waited for, or that runs on without that
        self.checkpoints = CheckpointKeeper(
            travel,
            tell,
            spacing_s=settings.spacing_s,
            most=settings.most,
            most_bytes=settings.most_bytes,
            wanted=settings.checkpoints,
        )

    def ask(self, ask: Ask, timeout_s: float = ANSWER_BOUND_S) -> Json:
        with _pointing(ask):
            return self.travel.client.ask(ask.verb, timeout_s=timeout_s, **ask.arguments)

    def question(self, ask: Ask) -> Json:
        """Of what changes nothing in the rank: `NotWaitedFor` for who interrupts it."""
        before = self._interrupts
        self.asks = True
        try:
            with _pointing(ask):
                return self.travel.client.ask(
                    ask.verb, timeout_s=ANSWER_BOUND_S, given_up=lambda: self._interrupts > before, **ask.arguments
                )
        finally:
            self.asks = False

    def begin(self) -> None:
        self.session.begin(self.ask(Ask("progress")))
        if self.session.phase is Phase.RUNNING and self.session.astray is None:
            self.wait()
        self.travel.stands_first_at(self.session.moment)
        if self.session.stop is not None and self.session.stop.reason in (StopReason.START, StopReason.RESTORED):
            self.checkpoints.origin()

    def run(
        self,
        ask: Ask,
        *,
        stops: str = "apply",
        silent: bool = False,
        only: Sequence[BreakpointSpec] | None = None,
        checkpoints: bool = True,
    ) -> list[Json]:
        """Resumes with `ask` and waits until the rank stands, has ended or is gone; gives the hits that were noted.

        stops: apply, note or ignore. only: these instead of the session's.
        """
        until = ask.arguments.get("until")
        self._send_stops([stop.to_json() for stop in only] if only is not None else self.session.breakpoints.to_json())
        self._resume(Ask(ask.verb, {**ask.arguments, "stops": stops}), checkpoints=checkpoints)
        return self.wait(Run(Moment.parse(until) if until else None, silent, checkpoints))

    def require_tracer(self) -> None:
        """`FacilityError` where nothing can be traced, before anything is given up for it."""
        try:
            self.ask(Ask("trace", {"can": True, "cache": str(cache_dir())}))
        except AgentError as error:
            raise FacilityError(f"{CANNOT_TRACE}: {error}", hint=error.hint) from None

    def trace(self) -> None:
        """Operators, allocations and frees are traced from here on, also after each way back."""
        try:
            if not self.ask(Ask("trace"))["on"]:
                self.ask(Ask("trace", {"on": True, "cache": str(cache_dir())}))
        except AgentError as error:
            self.traces = False
            raise FacilityError(f"{CANNOT_TRACE}: {error}", hint=error.hint) from None
        self.traces, self.switched_off = True, False

    def trace_off(self) -> None:
        self.switched_off = self.switched_off or self.traces
        self.traces = False
        if self.session.stop is not None:
            self.ask(Ask("trace", {"on": False}))

    def _send_stops(self, wanted: list[Json]) -> None:
        """The rank knows the stops of the time it comes from: it is told them again."""
        if wanted != self._stops_sent:
            self.ask(Ask("stops", {"stops": wanted}))
            self._stops_sent = wanted

    def wait(self, run: Run | None = None) -> list[Json]:
        """Until the rank stands, has ended or is gone. Interrupted once, it is asked to stop; twice, it runs on, and at
        once where it is expected to come to no further collective."""
        run = run or Run()
        watch = self._left = _Patience(self._settings.bound_s, self.session.moment)
        while self.session.phase is Phase.RUNNING:
            if self._interrupts > (0 if self.session.astray is not None or run.hangs_till_s else 1):
                raise Interrupted("the rank is still running", hint=RUNS_ON_HINT)
            try:
                if self._interrupts and not run.pauses:
                    self.ask(self.session.pause(), PROGRESS_S * 5)
                    run.pauses = True
                    self._tell(self._progress(watch.began_at, watch.moment, run))
                event = self.travel.client.next_event(
                    min(LOOK_S, max(self._settings.bound_s, 0.01)), "the rank to stop"
                )
            except WaitTimeout:
                event = None
            except RankLost as error:
                self.lost(error)
                continue
            if event is not None:
                watch.heard(self.take(event, run))
            if self.session.phase is Phase.RUNNING:
                self._look(watch, run)
        self._left = None
        self.checkpoints.stands()
        if self._interrupts and run.silent:
            raise Interrupted(f"{self.session.verb} was cancelled at {self.session.moment}", hint="")
        return run.noted

    def take(self, event: Json, run: Run | None = None) -> Notice:
        """One event of the rank, and what it was."""
        if event.get("event") == "diverged":
            event = self.explain(event)
        notice = self.session.named(notices.parse_notice(event))
        if isinstance(notice, Stopped) and run is not None and self._passes(notice, run):
            return notice
        if isinstance(notice, notices.Finished) and run is not None:
            run.note(notice.hits)
        fresh = self.session.notice(notice)
        if isinstance(notice, Stopped) and fresh:
            self._arrived(notice, run)
        told = _is_old_news(notice) or self._is_known_end(notice)
        if fresh and not (run is not None and run.silent and told):
            self._tell(notice)
        return notice

    def _is_known_end(self, notice: Notice) -> bool:
        """On a way that leads over the program's end once more; an earlier one is news."""
        if not isinstance(notice, notices.Finished):
            return False
        before, self._end = self._end, (notice.moment, notice.code)
        return before == self._end

    def lost(self, error: PrismError) -> None:
        if self.session.phase in (Phase.FINISHED, Phase.LOST):
            return
        if isinstance(error, InvalidMessage):  # its process lives, but is believed no more
            why = str(error)
        else:
            why = self._how_it_ended() or str(error)
        self.session.lost(why)
        self._tell(notices.Lost(moment=self.session.moment, why=self.session.lost_because))

    def say(self, text: str) -> None:
        self._tell(notices.Said(text))

    def say_cancelled(self, text: str) -> None:
        self._tell(notices.Cancelled(text))

    def say_progress(self, text: str, moment: Moment) -> None:
        self._tell(notices.Progress(text=text, moment=moment, passes=self._put_back, most_passes=self._most_put_back))

    def interrupt(self) -> None:
        self._interrupts += 1

    def pause_if_asked(self) -> None:
        """Where nobody waits for a rank that runs on, for the time to wait is over: an interrupt is for it, too."""
        if self._interrupts and self.session.phase is Phase.RUNNING:
            self._interrupts = 0
            self.ask(self.session.pause(), PROGRESS_S * 5)

    def look_on(self) -> None:
        """At a rank that runs on while nobody waits for it: that it hangs again is told all the same."""
        if self._left is not None and self.session.phase is Phase.RUNNING:
            self._look(self._left, Run(), waits=False)

    def listen(self) -> None:
        """From here on an interrupt is of what follows."""
        self._interrupts = self._put_back = self._most_put_back = 0

    def expect_passes(self, most: int) -> None:
        """The command puts the rank back so often from now on, at most."""
        self._most_put_back = self._put_back + most

    def return_to(self, number: int) -> None:
        """The rank stands again where that checkpoint was taken."""
        moment = next(c.moment for c in self.travel.checkpoints if c.number == number)
        self._tell(notices.Progress(text=f"returning to {moment}", moment=moment))
        self.travel.return_to(number)
        self._put_back += 1
        self.checkpoints.returned_to(number)
        self._stops_sent = [{"unknown": True}]
        self.session.returned(self.ask(Ask("progress")))
        if self.traces:
            self.trace()
        self._tell(notices.Returned(number=number, moment=self.session.moment))

    def end(self) -> None:
        """Ends the rank; it answers by being gone."""
        ask = self.session.quit()
        if ask is not None:
            try:
                self.ask(ask, END_BOUND_S)
            except PrismError:
                pass  # whoever started the rank waits for its process, with a bound

    def _resume(self, ask: Ask, *, checkpoints: bool = True) -> None:
        arguments = dict(ask.arguments)
        due_in_s = self.checkpoints.due_in_s if checkpoints else None
        if due_in_s is not None:
            arguments["pause_after_s"] = due_in_s
        if self.strict:
            arguments["strict"] = True
        self.ask(Ask(ask.verb, arguments))
        self.session.resumed()
        self.checkpoints.runs()

    def _passes(self, stop: Stopped, run: Run) -> bool:
        """A stop on the way, at which the rank goes on at once."""
        spacing = stop.reason == StopReason.SPACING
        on_the_way = run.silent and stop.reason in MADE_EVENTS and run.target is not None and stop.position < run.target
        if not (spacing or on_the_way):
            run.note(stop.hits)
            return False
        self.checkpoints.stands()
        if self.session.passed(stop):
            if spacing:
                self.checkpoints.save(stop.moment, stop.side, asked=False)
            else:
                run.note([{"moment": str(stop.position), "reason": stop.reason, "stop": 0}])
            self._resume(Ask("resume", {"continued": True}), checkpoints=run.checkpoints)
        return True

    def _arrived(self, stop: Stopped, run: Run | None) -> None:
        if differs := self.session.unlike(stop):
            self._tell(notices.Unlike(moment=stop.moment, what=differs))
        self.checkpoints.stands()
        if stop.collective and (run is None or run.checkpoints):
            self.checkpoints.first(stop.moment, stop.side)

    def _look(self, watch: _Patience, run: Run, *, waits: bool = True) -> None:
        """Is the rank getting on? Whatever it tells meanwhile, only another collective says so. `waits`: else only that
        it hangs again is told."""
        if not watch.due():
            return
        tally: Json | None = None
        try:
            told = self.ask(self.session.progress(), PROGRESS_S * 5)
            reached, tally = Moment.parse(str(told["moment"])), dict(told["tally"])
        except WaitTimeout:  # native code holds the interpreter's lock
            reached = watch.moment
        except RankLost as error:
            self.lost(error)
            return
        gets_on, hang = watch.gets_on(reached), self.session.hangs_by(tally)
        run.hangs_till_s = hang.bound_s if hang is not None else 0.0
        if hang is not None and watch.silent_s > hang.bound_s:
            self._hangs(hang, reached, tally, silent=run.silent)
            return
        if not waits:
            return
        if not gets_on:
            raise self._waited(watch.moment, hang, answers=tally is not None)
        if hang is not None and not run.said_that_it_waits and not run.silent:
            run.said_that_it_waits = True
            self._tell(notices.AtRecordedHang(moment=reached, hang=hang))
        self._tell(self._progress(watch.began_at, reached, run))

    def _waited(self, last: Moment, hang: RecordedHang | None, *, answers: bool) -> WaitTimeout:
        seen = f"after {last}" if answers else f"after {last} or later (it does not answer: native code holds its GIL)"
        hint = "give a longer --timeout: the rank may need longer than that, or it hangs"
        if hang is not None:
            hint = f"give a --timeout of more than {hang.bound_s:.3g} to see whether it hangs again: {hang.grounds}"
        return WaitTimeout(
            f"waited {self._settings.bound_s:g} s for the rank's next collective {seen}", hint=hint.removesuffix(": ")
        )

    def _hangs(self, hang: RecordedHang, reached: Moment, tally: Json | None, *, silent: bool) -> None:
        """The rank has shown that it hangs again. Its stack is asked for; one that holds the GIL cannot give it."""
        frames: tuple[Frame, ...] = ()
        why_not = "the replayed rank does not answer: native code holds its GIL"
        if tally is not None:
            try:
                threads = self.ask(Ask("stacks"), PROGRESS_S * 5)["threads"]
                frames = next((frames_of(each["frames"]) for each in threads if each["name"] == MAIN_THREAD), ())
                why_not = "the main thread of the replayed rank runs no Python code"
            except InvalidMessage:
                raise
            except RankLost as error:
                self.lost(error)
                return
            except PrismError as error:
                why_not = f"the replayed rank did not give its stack: {error}"
        before = [at for at in self.session.recorded if at <= reached]
        tally = tally or self.session.compared
        notice = notices.HangsAgain(
            moment=max(before, default=reached),
            hang=hang,
            is_at_start=not before,
            frames=frames,
            why_not=why_not,
            tally=tally,
        )
        self.session.notice(notice)
        if not silent:
            self._tell(notice)

    def _progress(self, began: Moment, reached: Moment, run: Run) -> notices.Progress:
        recorded = self.session.recorded
        end = run.target or (recorded[-1] if recorded else reached)
        total = sum(began < moment <= end for moment in recorded)
        done = sum(began < moment <= reached for moment in recorded)
        text = "pausing at the next collective" if run.pauses else RUNNING
        if run.hangs_till_s:  # all that is known of its way is done
            text, total = f"waiting up to {run.hangs_till_s:.3g} s for a further collective", 0
        return notices.Progress(
            text=text,
            moment=reached,
            done=done,
            total=total,
            passes=self._put_back,
            most_passes=self._most_put_back,
        )


class _Patience:
    """How long the rank may be silent: the bound starts anew with every collective."""

    def __init__(self, bound_s: float, moment: Moment) -> None:
        self._bound_s = bound_s
        self._last = self._looked = time.monotonic()
        self.moment = self.began_at = moment

    @property
    def silent_s(self) -> float:
        """Since the last collective that is known of."""
        return time.monotonic() - self._last

    def heard(self, notice: Notice) -> None:
        """Also a rank that cannot answer has told how far it came."""
        if isinstance(notice, _SAYS_HOW_FAR) and notice.moment > self.moment:
            self.moment, self._last = notice.moment, time.monotonic()

    def due(self) -> bool:
        now = time.monotonic()
        if now - self._looked < min(PROGRESS_S, self._bound_s):
            return False
        self._looked = now
        return True

    def gets_on(self, reached: Moment) -> bool:
        """False when it is over."""
        if reached != self.moment:
            self.moment, self._last = reached, time.monotonic()
            return True
        return time.monotonic() - self._last <= self._bound_s


@contextmanager
def _pointing(ask: Ask) -> Iterator[None]:
    """What the rank finds wrong with an expression is shown in it, as what is found wrong here is. The rank
    tells only the column in the text that it was sent."""
    try:
        yield
    except AgentError as error:
        text = str(ask.arguments.get("expression", ""))
        if error.column is None or "expression" not in ask.arguments or not 0 <= error.column <= len(text):
            raise
        raise complaint(text, error.column, error.bare, hint=error.hint) from None


def _is_old_news(notice: Notice) -> bool:
    """Told when this place was first passed."""
    old = (
        notices.Departed
        | notices.Synthesized
        | notices.Skipped
        | notices.StateCompared
        | notices.EndOfLog
        | notices.AllCompared
        | notices.ProgramRaised
        | notices.Hit
        | notices.BreakpointFailed
    )
    return isinstance(notice, old | Stopped)
