"""The verbs that move the rank, forwards and backwards: each is a few runs and returns that the session planned."""

from __future__ import annotations

from collections.abc import Callable

from prismdbg.debugger.driver import Driver
from prismdbg.debugger.inspection import Inspection
from prismdbg.debugger.routes import Past, Routes
from prismdbg.errors import UsageError, quoted
from prismdbg.model.breakpoints import StopReason
from prismdbg.model.moment import Moment
from prismdbg.session import answers
from prismdbg.session.answers import Answer
from prismdbg.session.line import Line, Verb
from prismdbg.session.session import MAX_COUNT, Ask, Phase


class Navigation:
    def __init__(self, driver: Driver, inspection: Inspection, routes: Routes) -> None:
        self._driver = driver
        self._session = driver.session
        self._inspection = inspection
        self._routes = routes

    def verbs(self) -> dict[Verb, Callable[[Line], Answer]]:
        session = self._session
        return {
            Verb.NEXT: lambda line: self._ahead(line, lambda: session.next(line.number or 1)),
            Verb.STEP: self._step,
            Verb.FINISH: lambda line: self._ahead(line, self._finish),
            Verb.CONTINUE: self._continue,
            Verb.UNTIL: self._until,
            Verb.NEXT_STEP: lambda line: self._ahead(line, lambda: session.next_step(line.number or 1)),
            Verb.GOTO: lambda line: self._goto_known(_moment(line)),
            Verb.REVERSE_NEXT: lambda line: self._reverse_next(line.number or 1),
            Verb.REVERSE_STEP: lambda line: self._reverse_step(line.number or 1),
            Verb.REVERSE_FINISH: lambda _: self._reverse_finish(),
            Verb.REVERSE_CONTINUE: lambda _: self._to_last(self._routes.last_hit(self._routes.here())),
            Verb.BACK: lambda line: self._visited(-(line.number or 1)),
            Verb.FORWARD: lambda line: self._visited(line.number or 1),
            Verb.CHECKPOINT: lambda _: self._checkpoint(),
            Verb.CHECKPOINTS: lambda _: self._table(),
            Verb.RESTART: lambda line: self._restart(line.number or 0),
            Verb.TRACE: self._trace,
        }

    def begin(self) -> Answer:
        self._driver.begin()
        return self._inspection.arrived()

    def _goto_known(self, moment: Moment) -> Answer:
        """Refused where the capsule does not reach; told where there is no such moment in it."""
        self._routes.require_inside(moment)
        answer = self._goto(moment)
        stop = self._session.stop
        is_step = not moment.collective and not moment.op  # its first collective is meant
        if stop is not None and stop.moment > moment and not (is_step and stop.moment.step == moment.step):
            self._driver.say(f"this run has no moment {moment}: the rank is at {stop.moment}, the first one after it")
        return answer

    def _goto(self, moment: Moment) -> Answer:
        self._routes.goto(moment)
        return self._inspection.arrived(beginning=self._routes.at_origin)

    def _ahead(self, line: Line, make: Callable[[], Ask]) -> Answer:
        self._session.require_stop()
        ask = make()  # refused before anything is asked for
        self._session.may_go_beyond(line.insists)
        if self._session.breakpoints.needs_trace and not self._driver.traces:
            self._routes.need_trace()
            ask = make()
        self._driver.run(ask)
        return self._inspection.arrived()

    def _continue(self, line: Line) -> Answer:
        """While the rank runs (after an interrupt), or hangs again, it means: wait on."""
        self._session.wait_on()
        if self._session.phase is Phase.RUNNING:
            self._driver.wait()
            return self._inspection.arrived()
        return self._ahead(line, self._session.continue_)

    def _until(self, line: Line) -> Answer:
        """To an operator by the collective before it, where that is known: from there on each event is looked at."""
        session, moment = self._session, _moment(line)
        session.until(moment)  # refused before anything is asked for
        if not moment.op:
            return self._ahead(line, lambda: session.until(moment))
        session.may_go_beyond(line.insists)
        self._routes.need_trace()
        before = max((at for at in session.recorded if session.moment < at <= moment), default=None)
        if before is not None:
            self._driver.run(session.until(before))
            stop = session.stop
            if stop is None or stop.moment != before or stop.reason != StopReason.UNTIL or stop.stops:
                return self._inspection.arrived()
        ask = session.until(moment)
        self._driver.run(Ask(ask.verb, {**ask.arguments, "events": {"until": str(moment)}}))
        return self._inspection.arrived()

    def _step(self, line: Line) -> Answer:
        count = line.number or 1
        if count > MAX_COUNT:
            raise UsageError(f"step takes a count from 1 to {MAX_COUNT}", hint="type a smaller count")
        self._session.require_stop()
        self._session.may_go_beyond(line.insists)
        self._routes.need_trace()
        self._driver.run(self._session.resume(events={"count": count}))
        return self._inspection.arrived()

    def _reverse_next(self, count: int) -> Answer:
        if not 1 <= count <= MAX_COUNT:
            raise UsageError(f"reverse-next takes a count from 1 to {MAX_COUNT}", hint="type a smaller count")
        if not self._routes.stands():
            count -= 1
            if not count:
                return self._inspection.arrived()
        before = self._routes.before(count)
        return self._to_last(Past(moment=before) if before is not None else None)

    def _reverse_step(self, count: int) -> Answer:
        """Events are found again by their number since the last collective: those after one collective at once."""
        if not 1 <= count <= MAX_COUNT:
            raise UsageError(f"reverse-step takes a count from 1 to {MAX_COUNT}", hint="type a smaller count")
        if not self._routes.stands():
            count -= 1
        if not self._routes.at_origin:
            self._routes.need_trace()
        while count:
            stop = self._session.stop
            previous = self._routes.before(1)
            if stop is None or self._routes.at_origin or previous is None:
                return self._to_origin()
            by = 1
            if stop.event and stop.reason != StopReason.EXCEPTION:
                by = min(count, stop.event)
                self._routes.back_to_event(previous, stop.event - by)
            elif stop.is_between:  # not counted on the way here: the operator begins just before
                self._routes.back_to(stop.moment)
            else:
                self._back_over(previous)
            count -= by
        return self._inspection.arrived()

    def _back_over(self, previous: Moment) -> None:
        """From a collective, or an exception, to the last event after the collective before: they are counted first."""
        self._routes.back_to(previous)
        self._routes.between(count=MAX_COUNT)
        self._routes.back_to_event(previous, self._events_before())

    def _events_before(self) -> int:
        stop = self._session.stop
        if stop is None:
            return 0
        return stop.event if stop.reason == StopReason.EXCEPTION else stop.events_before

    def _finish(self) -> Ask:
        """By operators where the rank stands between two collectives, inside of a module."""
        finish = self._session.enclosing()
        events = {"events": {"finish": True}} if self._in_module else {}
        return self._session.resume(finish=finish, **events)

    def _reverse_finish(self) -> Answer:
        self._routes.stands()
        here, finish = self._routes.here(), self._session.enclosing()
        past = self._routes.before_module(here, finish) if self._in_module else None
        return self._to_last(past or self._routes.last_hit(here, finish=finish))

    @property
    def _in_module(self) -> bool:
        stop = self._session.stop
        return stop is not None and stop.is_between and self._driver.traces and bool(stop.collective.get("module"))

    def _to_last(self, past: Past | None) -> Answer:
        if past is None:
            return self._to_origin()
        self._routes.back_to_hit(past)
        return self._inspection.arrived(stops=past.stops)

    def _to_origin(self) -> Answer:
        if not self._routes.at_origin:
            self._driver.return_to(0)
        return self._inspection.arrived(beginning=True)

    def _visited(self, by: int) -> Answer:
        visits = self._session.visits
        target, moments, at = visits.target(by), visits.moments, visits.at
        answer = self._goto(target)
        visits.put_back(moments, at + by)
        return answer

    def _checkpoint(self) -> Answer:
        self._session.require_view()
        stop = self._session.require_stop()
        self._driver.checkpoints.save(stop.moment, stop.side, asked=True)
        return answers.Done()  # which checkpoint that is was told

    def _table(self) -> Answer:
        travel = self._driver.travel
        return answers.CheckpointTable(
            checkpoints=travel.checkpoints, here=self._session.moment, why_none=self._driver.checkpoints.why_none
        )

    def _restart(self, number: int) -> Answer:
        if all(kept.number != number for kept in self._driver.travel.checkpoints):
            raise UsageError(f"no checkpoint number {number}", hint="type `checkpoints` to list them")
        self._driver.return_to(number)
        return self._inspection.arrived(beginning=number == 0)

    def _trace(self, line: Line) -> Answer:
        if line.text not in ("", "on", "off"):
            raise UsageError(f"trace takes on or off, not {quoted(line.text)}", hint="type `trace on` or `trace off`")
        if line.text == "off":
            self._driver.trace_off()
        elif line.text == "on":
            self._driver.switched_off = False
            self._routes.need_trace()
        traced = "tracing is on: operators, allocations and frees are recorded from here on"
        return answers.Done(what=traced if self._driver.traces else "tracing is off")


def _moment(line: Line) -> Moment:
    assert line.moment is not None
    return line.moment
