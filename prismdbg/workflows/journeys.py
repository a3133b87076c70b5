"""The verbs that move the rank, forwards and backwards: each is a few runs and returns that the session planned."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from prismdbg.errors import FacilityError, UsageError
from prismdbg.model.moment import Moment
from prismdbg.session import answers
from prismdbg.session.answers import Answer
from prismdbg.session.line import Line, Verb
from prismdbg.session.reverse import way_to, windows
from prismdbg.session.session import MAX_COUNT, PARKED, Ask, Phase
from prismdbg.session.stops import StopSpec
from prismdbg.workflows.driver import Driver, Json
from prismdbg.workflows.looks import Looks


class Journeys:
    def __init__(self, driver: Driver, looks: Looks) -> None:
        self._driver = driver
        self._session = driver.session
        self._looks = looks

    def verbs(self) -> dict[Verb, Callable[[Line], Answer]]:
        session = self._session
        return {
            Verb.NEXT: lambda line: self._ahead(line, lambda: session.next(line.number or 1)),
            Verb.STEP: self._step,
            Verb.FINISH: lambda line: self._ahead(line, lambda: session.resume(finish=session.enclosing())),
            Verb.CONTINUE: self._continue,
            Verb.UNTIL: lambda line: self._ahead(line, lambda: session.until(_moment(line))),
            Verb.NEXT_STEP: lambda line: self._ahead(line, lambda: session.next_step(line.number or 1)),
            Verb.GOTO: lambda line: self.goto(_moment(line)),
            Verb.REVERSE_NEXT: lambda line: self._reverse_next(line.number or 1),
            Verb.REVERSE_STEP: lambda line: self._reverse_step(line.number or 1),
            Verb.REVERSE_FINISH: lambda _: self._reverse_finish(),
            Verb.REVERSE_CONTINUE: lambda _: self._to_last(self.last_hit(self.here())),
            Verb.BACK: lambda line: self._visited(-(line.number or 1)),
            Verb.FORWARD: lambda line: self._visited(line.number or 1),
            Verb.CHECKPOINT: lambda _: self._checkpoint(),
            Verb.CHECKPOINTS: lambda _: self._table(),
            Verb.RESTART: lambda line: self._restart(line.number or 0),
            Verb.TRACE: self._trace,
        }

    def begin(self) -> Answer:
        self._driver.begin()
        return self._looks.arrived()

    def here(self) -> Moment:
        """What lies before it is the past. After the program's end, or where the rank was lost, its last moment, too,
        is."""
        session = self._session
        session.require_no_run()
        at = session.moment
        return at if session.phase is Phase.STOPPED else Moment(at.step, at.collective, at.op + 1)

    def goto(self, moment: Moment) -> Answer:
        """Stops are passed."""
        session = self._session
        session.require_no_run()
        if session.phase is Phase.STOPPED and moment > session.moment:
            session.may_go_beyond(False)
            self._forward_to(moment)
        elif session.stop is None or session.moment != moment or session.stop.reason == PARKED:
            self.back_to(moment)
        return self._looks.arrived(beginning=self._at_origin)

    def back_to(self, moment: Moment) -> None:
        """Exactly there, by the nearest image; what lies on the way was told before."""
        collective = Moment(moment.step, moment.collective)
        leg = way_to(self._driver.travel.checkpoints, collective)
        self._driver.return_to(leg.checkpoint)
        if leg.until is not None and not (self._session.moment >= leg.until and self._at_origin):
            self._driver.run(self._session.resume(until=str(leg.until)), stops="ignore", silent=True)
        if moment.op:
            self._between(until=str(moment))

    def back_to_event(self, collective: Moment, number: int) -> None:
        """The number-th event after a collective; 0 is the collective."""
        self.back_to(collective)
        if number:
            self._between(count=number)

    def goto_first(self) -> None:
        """Where the rank can be looked at for the first time."""
        self._driver.return_to(0)
        if self._session.stop is not None and self._session.stop.reason == PARKED:
            self._driver.run(self._session.next(), stops="ignore", silent=True)

    def before(self, count: int) -> Moment | None:
        """The count-th collective before here, from where the rank stands; None where the beginning is nearer."""
        if self._at_origin:
            return None
        moments = [Moment.parse(text) for text in self._driver.ask(self._session.history(count))["moments"]]
        return moments[-count] if len(moments) >= count else None

    def noted(
        self, here: Moment, only: Sequence[StopSpec] | None = None, finish: Json | None = None
    ) -> tuple[list[Json], Moment | None]:
        """rr's way: forward from an earlier image, hits only noted, up to here; from the one before where there are
        none. All hits of the window that has any, and where it began; the rank is anywhere afterwards."""
        for leg in windows(self._driver.travel.checkpoints, here):
            self._driver.return_to(leg.checkpoint)
            began = self._session.moment
            arguments = {"finish": finish} if finish is not None else {}
            ask = self._session.resume(until=str(leg.until), **arguments)
            hits = self._driver.run(ask, stops="note", silent=True, only=only)
            if past := [hit for hit in hits if Moment.parse(str(hit["moment"])) < here]:
                return past, began
        return [], None

    def last_hit(
        self, here: Moment, only: Sequence[StopSpec] | None = None, finish: Json | None = None
    ) -> Moment | None:
        hits, _ = self.noted(here, only, finish)
        return max((Moment.parse(str(hit["moment"])) for hit in hits), default=None)

    def _forward_to(self, moment: Moment) -> None:
        collective = Moment(moment.step, moment.collective)
        if collective > self._session.moment:
            self._driver.run(self._session.resume(until=str(collective)), stops="ignore")
        if moment.op and self._session.phase is Phase.STOPPED and moment > self._session.moment:
            self._between(until=str(moment))

    def _between(self, **events: object) -> None:
        """On by events, not further than the next collective."""
        self._session.require_view()
        self._driver.need_trace()
        self._driver.run(self._session.resume(events=events, **_bound(events)), stops="ignore", silent=True)

    def _ahead(self, line: Line, make: Callable[[], Ask]) -> Answer:
        self._session.require_stop()
        ask = make()  # refused before anything is asked for
        self._session.may_go_beyond(line.insists)
        self._driver.run(ask)
        return self._looks.arrived()

    def _continue(self, line: Line) -> Answer:
        """While the rank runs (after an interrupt), it means: wait on."""
        if self._session.phase is Phase.RUNNING:
            self._driver.wait()
            return self._looks.arrived()
        return self._ahead(line, self._session.continue_)

    def _step(self, line: Line) -> Answer:
        self._session.require_view()
        self._session.may_go_beyond(line.insists)
        self._driver.need_trace()
        self._driver.run(self._session.resume(events={"count": line.number or 1}))
        return self._looks.arrived()

    @property
    def _at_origin(self) -> bool:
        stop = self._session.stop
        return stop is not None and not stop.collective and stop.reason in (PARKED, "start")

    def _reverse_next(self, count: int) -> Answer:
        if not 1 <= count <= MAX_COUNT:
            raise UsageError(f"reverse-next takes a count from 1 to {MAX_COUNT}")
        if not self._stands():
            count -= 1
            if not count:
                return self._looks.arrived()
        return self._to_last(self.before(count))

    def _stands(self) -> bool:
        """Where the program has ended, or the rank is gone, it is brought to the last place known first: False."""
        session = self._session
        session.require_no_run()
        if session.phase is Phase.STOPPED:
            return True
        self.back_to(session.moment)
        return False

    def _reverse_step(self, count: int) -> Answer:
        """Events are found again by their number since the last collective."""
        if not self._stands():
            count -= 1
        for _ in range(count):
            stop = self._session.stop
            if stop is None or self._at_origin:
                break
            collective = Moment(stop.moment.step, stop.moment.collective)
            if stop.event:
                self.back_to_event(collective, stop.event - 1)
            else:
                previous = self.before(1)
                if previous is None:
                    return self._to_origin()
                self._back_over(previous, collective)
        return self._looks.arrived(beginning=self._at_origin)

    def _back_over(self, previous: Moment, collective: Moment) -> None:
        """From a collective to the last event before it: they are counted first."""
        self.back_to(previous)
        self._between(count=MAX_COUNT)
        stop = self._session.stop
        events = stop.events_before if stop is not None else 0
        self.back_to_event(previous, events)

    def _reverse_finish(self) -> Answer:
        self._stands()
        return self._to_last(self.last_hit(self.here(), finish=self._session.enclosing()))

    def _to_last(self, target: Moment | None) -> Answer:
        if target is None:
            return self._to_origin()
        self.back_to(target)
        return self._looks.arrived()

    def _to_origin(self) -> Answer:
        if not self._at_origin:
            self._driver.return_to(0)
        return self._looks.arrived(beginning=True)

    def _visited(self, by: int) -> Answer:
        visits = self._session.visits
        target, moments, at = visits.target(by), visits.moments, visits.at
        answer = self.goto(target)
        visits.put_back(moments, at + by)
        return answer

    def _checkpoint(self) -> Answer:
        self._session.require_view()
        self._driver.save(asked=True)
        return self._table()

    def _table(self) -> Answer:
        travel = self._driver.travel
        return answers.CheckpointTable(
            checkpoints=travel.checkpoints, here=self._session.moment, why_none=self._driver.no_images
        )

    def _restart(self, number: int) -> Answer:
        if all(kept.number != number for kept in self._driver.travel.checkpoints):
            raise UsageError(f"there is no checkpoint {number}", hint="`checkpoints` lists them")
        if self._session.phase is Phase.RUNNING:
            raise FacilityError("the rank is running", hint="interrupt it first")
        self._driver.return_to(number)
        return self._looks.arrived(beginning=number == 0)

    def _trace(self, line: Line) -> Answer:
        if line.text not in ("", "on", "off"):
            raise UsageError(f"trace takes on or off, not {line.text!r}")
        if line.text == "off":
            self._driver.trace_off()
        elif line.text == "on":
            self._session.require_view()
            self._driver.need_trace()
        return answers.Done(what="traced from here on" if self._driver.traces else "not traced")


def _bound(events: dict[str, object]) -> dict[str, str]:
    """An event's moment bounds the run, too: where there is no such operator, the next collective ends it."""
    return {"until": str(events["until"])} if "until" in events else {}


def _moment(line: Line) -> Moment:
    assert line.moment is not None
    return line.moment
