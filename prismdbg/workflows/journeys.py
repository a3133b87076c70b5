"""The verbs that move the rank, forwards and backwards: each is a few runs and returns that the session planned."""

from __future__ import annotations

from collections.abc import Callable

from prismdbg.errors import FacilityError, UsageError
from prismdbg.model.moment import Moment
from prismdbg.session import answers
from prismdbg.session.answers import Answer
from prismdbg.session.line import Line, Verb
from prismdbg.session.reverse import way_to, windows
from prismdbg.session.session import MAX_COUNT, PARKED, Ask, Phase
from prismdbg.workflows.driver import Driver
from prismdbg.workflows.looks import Looks


class Journeys:
    def __init__(self, driver: Driver, looks: Looks) -> None:
        self._driver = driver
        self._session = driver.session
        self._looks = looks

    def verbs(self) -> dict[Verb, Callable[[Line], Answer]]:
        return {
            Verb.NEXT: lambda line: self._ahead(line, lambda: self._session.next(line.number or 1)),
            Verb.CONTINUE: self._continue,
            Verb.UNTIL: lambda line: self._ahead(line, lambda: self._session.until(_moment(line))),
            Verb.NEXT_STEP: lambda line: self._ahead(line, lambda: self._session.next_step(line.number or 1)),
            Verb.GOTO: lambda line: self._goto(_moment(line)),
            Verb.REVERSE_NEXT: lambda line: self._reverse_next(line.number or 1),
            Verb.REVERSE_CONTINUE: lambda _: self._reverse_continue(),
            Verb.BACK: lambda line: self._visited(-(line.number or 1)),
            Verb.FORWARD: lambda line: self._visited(line.number or 1),
            Verb.CHECKPOINT: lambda _: self._checkpoint(),
            Verb.CHECKPOINTS: lambda _: self._table(),
            Verb.RESTART: lambda line: self._restart(line.number or 0),
        }

    def begin(self) -> Answer:
        self._driver.begin()
        return self._looks.arrived()

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

    def _goto(self, moment: Moment) -> Answer:
        session = self._session
        if session.phase is Phase.STOPPED and moment > session.moment:
            session.may_go_beyond(False)
            self._driver.run(session.until(moment), stops="ignore")
        elif session.stop is None or session.moment != moment or session.stop.reason == PARKED:
            self._back_to(moment)
        return self._looks.arrived(beginning=self._at_origin)

    @property
    def _at_origin(self) -> bool:
        stop = self._session.stop
        return stop is not None and not stop.collective and stop.reason in (PARKED, "start")

    def _back_to(self, moment: Moment) -> None:
        """Exactly there, by the nearest image; what lies on the way was told before."""
        if moment.op:
            raise UsageError(f"{moment} lies between collectives", hint="trace on, then step or goto")
        leg = way_to(self._driver.travel.checkpoints, moment)
        self._driver.return_to(leg.checkpoint)
        if leg.until is not None and not (self._session.moment >= leg.until and self._at_origin):
            self._driver.run(self._session.resume(until=str(leg.until)), stops="ignore", silent=True)

    def _reverse_next(self, count: int) -> Answer:
        if not 1 <= count <= MAX_COUNT:
            raise UsageError(f"reverse-next takes a count from 1 to {MAX_COUNT}")
        target = self._before(count)
        if target is None:
            return self._to_origin()
        self._back_to(target)
        return self._looks.arrived()

    def _before(self, count: int) -> Moment | None:
        """The count-th collective before here; None where the capsule's beginning is nearer."""
        session = self._session
        if session.phase is not Phase.STOPPED:  # ended, or gone: the last place known is the first step back
            if session.phase is Phase.RUNNING:
                session.require_stop()
            self._back_to(session.moment)
            count -= 1
            if not count:
                return session.moment
        if self._at_origin:
            return None
        moments = [Moment.parse(text) for text in self._driver.ask(session.history(count))["moments"]]
        return moments[-count] if len(moments) >= count else None

    def _to_origin(self) -> Answer:
        self._driver.return_to(0)
        return self._looks.arrived(beginning=True)

    def _reverse_continue(self) -> Answer:
        """rr's way: forward from an earlier image, stops only noted; then to the last of them."""
        session = self._session
        if session.phase is Phase.RUNNING:
            session.require_stop()
        here = (
            session.moment
            if session.phase is Phase.STOPPED
            else Moment(session.moment.step, session.moment.collective + 1)
        )
        found = self.last_hit(here)
        if found is None:
            return self._to_origin()
        self._back_to(found)
        return self._looks.arrived()

    def last_hit(self, here: Moment) -> Moment | None:
        """The last place before here where a stop is hit; the rank is anywhere afterwards."""
        for leg in windows(self._driver.travel.checkpoints, here):
            assert leg.until is not None
            self._driver.return_to(leg.checkpoint)
            noted = self._driver.run(self._session.resume(until=str(leg.until)), stops="note", silent=True)
            hits = [Moment.parse(str(hit["moment"])) for hit in noted]
            before = [hit for hit in hits if hit < here]
            if before:
                return max(before)
        return None

    def _visited(self, by: int) -> Answer:
        target = self._session.visits.target(by)
        kept = self._session.visits
        moments, at = kept.moments, kept.at
        answer = self._goto(target)
        kept.put_back(moments, at + by)
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


def _moment(line: Line) -> Moment:
    assert line.moment is not None
    return line.moment
