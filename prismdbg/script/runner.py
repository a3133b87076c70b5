"""Carries a script out: goes from moment to moment, looks at each stop that is hit, notes what it finds.

Drives a `Rank`; knows no process and no clock.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass

from prismdbg.errors import PrismError, RankLost, WaitTimeout
from prismdbg.expr.parser import Expression
from prismdbg.model.breakpoints import BreakpointKind
from prismdbg.model.moment import Moment
from prismdbg.script.breakpoints import forbidding, spec_of
from prismdbg.script.findings import Ending, Finding, Findings, FoundPlace, Json, Outcome, RecordedValue
from prismdbg.script.language import END, GoBack, Record, Script, When
from prismdbg.script.operands import operands
from prismdbg.script.rank import Rank, Stand
from prismdbg.script.value_line import truth, value_line
from prismdbg.session.answers import Phase
from prismdbg.session.breakpoints import BreakpointSpec, asks_for_memory

END_OF_LOG, DIVERGED, EXCEPTION = "end of the log", "diverged", "exception"
_SHOWN = {
    BreakpointKind.NAN: ("input", "out"),
    BreakpointKind.EXCEPTION: ("exception",),
    BreakpointKind.DIVERGENCE: ("input",),
}
_HOW = {Phase.FINISHED: "the program ended", Phase.RUNNING: "the program ended", Phase.HUNG: "the rank hung again"}
_ALWAYS_STOPS = {
    EXCEPTION: BreakpointKind.EXCEPTION,
    DIVERGED: BreakpointKind.DIVERGENCE,
}  # by reason, not by a stop's number
MAX_RECORDS_BYTES = 64 << 20
Due = Callable[[When], bool]


@dataclass(frozen=True, slots=True)
class _Check:
    """One thing that is to hold, and what was found of it."""

    expression: Expression | None
    at: When | None
    finding: Finding
    on: BreakpointKind = BreakpointKind.COLLECTIVE


class Runner:
    """`end`: B, where the replay ends that has no `run_to`. `ended` is called there, before the rank goes back."""

    def __init__(
        self,
        rank: Rank,
        script: Script,
        end: Moment,
        findings: Findings,
        ended: Callable[[], None] = lambda: None,
    ) -> None:
        self._rank = rank
        self._script = script
        self._findings = findings
        self._ended = ended
        self._end = script.run_to or end
        self._least = min(self._end, end)  # a program that ends later has come to its end
        findings.announce(script)
        found = iter(findings.checks)
        self._expects = [_Check(entry.that, entry.at, next(found)) for entry in script.expect]
        self._forbids = [_Check(entry.when, None, next(found), entry.on) for entry in script.forbid]
        self._stops: dict[int, str | _Check] = {}
        self._specs: dict[int, BreakpointSpec] = {}
        self._left_bytes = MAX_RECORDS_BYTES
        self._stand = Stand(phase=Phase.STOPPED, moment=Moment(0))
        self._before = self._stand.moment  # where it stood before the last target

    def run(self) -> None:
        """What it finds stands in the findings, also where an error ends it."""
        findings = self._findings
        findings.ending = Ending.BROKEN
        try:
            self._prepare()
            ending = self._to_the_end()
            self._ended()
            findings.ending = self._go_back() if ending is Ending.COMPLETE else ending
        except WaitTimeout as error:
            findings.ending, findings.cut_short = Ending.TIMEOUT, str(error)
        except RankLost as error:
            findings.ending, findings.cut_short = Ending.LOST, str(error)
        except BaseException as error:
            findings.cut_short = str(error) or type(error).__name__
            raise
        finally:
            findings.close()

    def condition_failed(self, number: int, moment: Moment, error: str) -> None:
        """A stop's condition has no value somewhere. What is forbidden cannot be said to have stayed away then."""
        entry = self._stops.get(number)
        text = f"its condition has no value at {moment}: {error}"
        if isinstance(entry, _Check):
            entry.finding.fail(moment, text)
        elif entry is not None:
            self._findings.notes.append(f"breakpoint {self._name(number)}: {text}")

    def _prepare(self) -> None:
        self._stand = self._rank.begin(traced=self._needs_trace)
        self._findings.reached = self._stand.moment
        for stop in self._script.stop_at:
            self._add(spec_of(stop), stop.name.text)
        for entry, check in zip(self._script.forbid, self._forbids, strict=True):
            self._add(forbidding(entry), check)

    @property
    def _needs_trace(self) -> bool:
        """Whether an operator's moment, or how much memory is held, is asked for. Stops see to it themselves."""
        values = [entry.that for entry in self._script.expect] + [entry.value for entry in self._script.record]
        return any(moment.op for moment in self._targets()) or any(asks_for_memory(value) for value in values)

    def _add(self, spec: BreakpointSpec, entry: str | _Check) -> None:
        number = self._rank.add_stop(spec)
        self._stops[number], self._specs[number] = entry, spec

    def _to_the_end(self) -> Ending:
        targets = self._targets()
        for number, target in enumerate(targets):
            ending = self._reach(target)
            if ending is not None:
                for missed in targets[number:]:
                    self._not_recorded(missed, f"the replay ended at {self._findings.reached}, before {missed}")
                return ending
        if self._script.run_to is not None:
            return Ending.COMPLETE
        return self._reach(None) or Ending.COMPLETE

    def _go_back(self) -> Ending:
        for asked in self._script.back_to:
            try:
                found = self._rank.find(asked)
            except (RankLost, WaitTimeout):
                raise
            except PrismError as error:
                self._not_found(asked, error.bare)
                continue
            if found.answer is None:
                return Ending.LOST
            name = asked.name.text
            self._findings.places.append(FoundPlace(name=name, to=asked.to, answer=found.answer))
            self._look(found.stand, _at(name))
        return Ending.COMPLETE

    def _not_found(self, asked: GoBack, why: str) -> None:
        name = asked.name.text
        self._findings.places.append(FoundPlace(name=name, to=asked.to, answer=None, why=why))
        for check in self._expects:
            if check.at is not None and _at(name)(check.at):
                check.finding.fail(None, f"place not found: {why}")

    def _targets(self) -> list[Moment]:
        whens = [*(entry.at for entry in self._script.expect), *(entry.at for entry in self._script.record)]
        moments = {moment for when in whens if (moment := self._moment_of(when)) is not None}
        return sorted(moments | ({self._script.run_to} if self._script.run_to is not None else set()))

    def _moment_of(self, when: When) -> Moment | None:
        return self._end if when.text == END else when.moment

    def _reach(self, target: Moment | None) -> Ending | None:
        """None when the rank stands at the target, or as near behind it as it came, also on the way to another."""
        if target is None or not self._has_reached(target):
            self._before = self._stand.moment
        while target is None or not self._has_reached(target):
            ending = self._go(target)
            if ending is not None:
                return ending
        self._look_at_moment(target, self._stand)
        return None

    def _has_reached(self, target: Moment) -> bool:
        return self._stand.moment >= target and self._stand.reason != EXCEPTION

    def _go(self, target: Moment | None) -> Ending | None:
        """To a stop, or where it ends; from behind the target, of which an exception may have kept the rank, to the
        next collective."""
        at = self._stand
        stand = self._rank.go(Moment(at.moment.step, at.moment.collective + 1) if _is_past(target, at) else target)
        self._stand, self._findings.reached = stand, stand.moment
        self._look_at_stops(stand)
        if stand.phase is Phase.LOST:
            return Ending.LOST
        if stand.phase is not Phase.STOPPED:
            self._program_ended(stand.moment, _HOW[stand.phase])
            return Ending.COMPLETE
        if stand.reason == DIVERGED:
            return Ending.DIVERGED
        return Ending.COMPLETE if target is None and stand.reason == END_OF_LOG else None

    def _program_ended(self, moment: Moment, how: str) -> None:
        if moment < self._least:
            self._findings.cut_short = f"{how} at {moment}, before {self._least}"

    def _look_at_stops(self, stand: Stand) -> None:
        for number in (*stand.stops, *self._unnumbered(stand)):
            hit = self._stops.get(number)
            if isinstance(hit, _Check):
                hit.finding.hits += 1
                hit.finding.fail(stand.moment, "it happened")
                hit.finding.stop = self._name(number)
                self._explain(hit, stand)
            elif hit is not None:
                self._look(stand, _at(hit), self._name(number))

    def _name(self, number: int) -> str:
        """`losses (train.py:73)`; of what is forbidden, which has no name, `allocation if size > 1e9`."""
        entry, title = self._stops[number], self._specs[number].title
        return f"{entry} ({title})" if isinstance(entry, str) else title

    def _unnumbered(self, stand: Stand) -> list[int]:
        """Stops that wait for what every debugged rank stops at."""
        kind = _ALWAYS_STOPS.get(stand.reason)
        return [
            number
            for number, spec in self._specs.items()
            if spec.kind is kind and number not in stand.stops and self._holds(spec.whole_condition)
        ]

    def _holds(self, condition: str) -> bool:
        value = self._value(condition)[0] if condition else None
        return not condition or (value is not None and bool(truth(value)))

    def _look_at_moment(self, target: Moment, stand: Stand) -> None:
        if stand.moment == target:
            self._look(stand, lambda when: self._moment_of(when) == target)
            return
        why = f"{target} does not exist in this run: the rank went from {self._before} to {stand.moment}"
        self._not_recorded(target, why)
        for check in self._expects:
            if check.at is not None and self._moment_of(check.at) == target:
                check.finding.fail(stand.moment, why)

    def _not_recorded(self, target: Moment, why: str) -> None:
        missed = (record.name for record in self._script.record if self._moment_of(record.at) == target)
        self._findings.notes += [f"{name} is not recorded: {why}" for name in missed]

    def _look(self, stand: Stand, due: Due, stop: str = "") -> None:
        """`stop`: the one that it stands at, where one was hit."""
        for check in self._expects:
            if check.at is not None and due(check.at) and check.finding.outcome is not Outcome.FAILED:
                self._expect(check, stand, stop)
        for record in self._script.record:
            if due(record.at):
                self._keep(self._record(record, stand))

    def _keep(self, record: RecordedValue) -> None:
        """A hostile rank may come to a stop without end."""
        self._left_bytes -= len(json.dumps(record.to_json()))
        if self._left_bytes < 0:
            raise RankLost(
                f"the recorded values are larger than {MAX_RECORDS_BYTES >> 20} MiB",
                hint="record fewer values, or at fewer places",
            )
        self._findings.records.append(record)

    def _expect(self, check: _Check, stand: Stand, stop: str) -> None:
        assert check.expression is not None
        check.finding.hits += 1
        value, why = self._value(check.expression.text)
        if value is None:
            check.finding.fail(stand.moment, why)
        elif truth(value) is None:
            check.finding.fail(stand.moment, f"it is neither true nor false: {why}")
        elif not truth(value):
            check.finding.fail(stand.moment, f"it is {why}")
        elif check.at is not None and self._moment_of(check.at) is not None:  # at a stop there may be more hits
            check.finding.outcome = Outcome.HELD
        if check.finding.outcome is Outcome.FAILED:
            check.finding.stop = stop
            self._explain(check, stand)
        check.finding.assumed |= _is_assumed(value)

    def _explain(self, check: _Check, stand: Stand) -> None:
        """The values that the expression is about."""
        if stand.phase is Phase.STOPPED:
            texts = operands(check.expression) if check.expression is not None else _SHOWN[check.on]
            found = {text: self._value(text) for text in texts}
            check.finding.values = {text: line for text, (_, line) in found.items()}
            check.finding.assumed |= any(_is_assumed(value) for value, _ in found.values())

    def _record(self, record: Record, stand: Stand) -> RecordedValue:
        value, text = self._value(record.value.text)
        return RecordedValue(name=record.name, moment=stand.moment, text=text, value=value, assumed=_is_assumed(value))

    def _value(self, text: str) -> tuple[Json | None, str]:
        """The value and its line; none, and why."""
        try:
            value = self._rank.value(text)
        except (RankLost, WaitTimeout):
            raise
        except PrismError as error:
            return None, f"it has no value: {error.bare}"
        return value, value_line(value)


def _at(name: str) -> Due:
    return lambda when: when.moment is None and when.text == name


def _is_past(target: Moment | None, stand: Stand) -> bool:
    return target is not None and stand.position >= target


def _is_assumed(value: Json | None) -> bool:
    """As the rank says: it rests on the answers of synthesized peers."""
    return value is not None and bool(value.get("assumed"))
