"""The verbs that keep stops and watches. Nothing is sent here: the rank is told when it goes on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from prismdbg.debugger.driver import Driver
from prismdbg.debugger.inspection import Inspection
from prismdbg.expr.parser import parse
from prismdbg.model.breakpoints import BreakpointKind, StopReason
from prismdbg.session import answers
from prismdbg.session.answers import Answer
from prismdbg.session.breakpoint_check import check, check_names, check_value, doubt, doubt_of_op
from prismdbg.session.breakpoint_line import parse_breakpoint, require_change
from prismdbg.session.breakpoints import BreakpointSpec
from prismdbg.session.known import Known
from prismdbg.session.line import Line, Verb
from prismdbg.session.watches import Watched


class StopVerbs:
    def __init__(self, driver: Driver, inspection: Inspection, known: Callable[[], Known]) -> None:
        self._driver = driver
        self._known = known
        self._session = driver.session
        self._stops = driver.session.breakpoints
        self._inspection = inspection

    def verbs(self) -> dict[Verb, Callable[[Line], Answer]]:
        stops = self._stops
        return {
            Verb.BREAK: lambda line: self._add(parse_breakpoint(line.text)),
            Verb.TBREAK: lambda line: self._add(replace(parse_breakpoint(line.text), once=True)),
            Verb.CONDITION: self._condition,
            Verb.IGNORE: lambda line: answers.BreakpointSet(stop=stops.ignore(_number(line), int(line.text))),
            Verb.LOG_ONLY: self._log_only,
            Verb.DELETE: self._delete,
            Verb.STOPS: lambda _: self._table(),
            Verb.WATCH: self._watch,
            Verb.UNWATCH: self._unwatch,
        }

    def _add(self, spec: BreakpointSpec) -> Answer:
        """Refused where it can never be hit; where it may not be, that is said."""
        check(spec, self._known())
        if text := doubt(spec, self._known()):
            self._driver.say(text)
        return answers.BreakpointSet(stop=self._stops.add(spec))

    def _condition(self, line: Line) -> Answer:
        number = _number(line)
        if line.text:
            condition, kind = parse(line.text), self._stops.get(number).kind
            check_names(condition, kind, self._known())
            if text := doubt_of_op(condition, kind):
                self._driver.say(text)
        return answers.BreakpointSet(stop=self._stops.condition(number, line.text))

    def _log_only(self, line: Line) -> Answer:
        number = _number(line)
        check(replace(self._stops.get(number), log_only=True, message=line.text), self._known())
        return answers.BreakpointSet(stop=self._stops.log_only(number, line.text))

    def _delete(self, line: Line) -> Answer:
        if line.number is not None:
            return answers.BreakpointSet(stop=self._stops.remove(line.number), gone=True)
        self._stops.clear()
        return self._table()

    def _table(self) -> Answer:
        return answers.BreakpointTable(stops=self._stops.all, hits=dict(self._stops.hits))

    def _watch(self, line: Line) -> Answer:
        if line.text:
            check_value(parse(line.text), self._known())
            if line.insists:
                require_change(line.text)
            self._inspection.trace_for(line.text)
            added = self._session.watches.add(line.text)
            if line.insists:
                self._stops.add(BreakpointSpec(kind=BreakpointKind.CHANGE, expression=added.text))
            return answers.WatchTable(watched=(self._shown(added.number),))
        return answers.WatchTable(watched=tuple(self._shown(watch.number) for watch in self._session.watches.all))

    def _shown(self, number: int) -> Watched:
        watch = next(watch for watch in self._session.watches.all if watch.number == number)
        stop = self._session.stop
        if stop is None or stop.reason == StopReason.PARKED:
            return Watched(number=number, text=watch.text)
        return self._inspection.watched(watch)

    def _unwatch(self, line: Line) -> Answer:
        gone = self._session.watches.remove(_number(line))
        return answers.Done(what=f"watch expression {gone.number} is deleted: {gone.text}")


def _number(line: Line) -> int:
    assert line.number is not None
    return line.number
