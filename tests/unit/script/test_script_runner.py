"""A script carried out over a rank that is a list of moments: what is looked at, when, and what comes of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from prismdbg.errors import PrismError, RankLost, UsageError, WaitTimeout
from prismdbg.expr.evaluator import Environment, evaluate
from prismdbg.expr.parser import parse
from prismdbg.model.collective import Frame
from prismdbg.model.moment import Moment
from prismdbg.script import runner
from prismdbg.script.findings import Ending, Finding, Findings, Outcome
from prismdbg.script.language import GoBack
from prismdbg.script.operands import operands
from prismdbg.script.rank import Found, Stand
from prismdbg.script.reader import read
from prismdbg.script.runner import Runner
from prismdbg.session.answers import Originated, Phase
from prismdbg.session.breakpoints import BreakpointSpec

Json = dict[str, Any]
Names = dict[str, Any]
END = Moment(3, 1)


def scalar(value: Any) -> Json:
    return {"kind": "scalar", "type": type(value).__name__, "value": value}


@dataclass
class FakeRank:
    """Six collectives, 1.1 to 3.2; B is 3.1. `loss` is their number. fate: what happens when one is come to."""

    fate: dict[Moment, Callable[[], Stand]] = field(default_factory=dict)
    left: Moment | None = None
    moments: tuple[Moment, ...] = tuple(Moment(step, number) for step in (1, 2, 3) for number in (1, 2))
    at: int = -1
    stops: list[BreakpointSpec] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)
    traced: bool = False

    def begin(self, *, traced: bool) -> Stand:
        self.traced = traced
        return Stand(phase=Phase.STOPPED, moment=Moment(0), reason="start")

    def add_stop(self, spec: BreakpointSpec) -> int:
        self.stops.append(spec)
        return len(self.stops) + 10

    def go(self, until: Moment | None) -> Stand:
        while self.at + 1 < len(self.moments):
            self.at += 1
            moment = self.moments[self.at]
            if moment in self.fate:
                return self.fate.pop(moment)()
            hit = tuple(n + 11 for n, spec in enumerate(self.stops) if self._is_hit(n, spec))
            if hit or (until is not None and moment >= until):
                return Stand(phase=Phase.STOPPED, moment=moment, reason="stop", stops=hit)
            if moment > END:
                return Stand(phase=Phase.STOPPED, moment=moment, reason="end of the log")
        return Stand(phase=Phase.FINISHED, moment=self.moments[-1])

    def find(self, asked: GoBack) -> Found:
        """Everything came from 1.2."""
        if asked.of is not None and asked.of.text == "nowhere":
            raise UsageError("no NaN or infinity in nowhere up to 3.2")
        self.at = 1
        frames = (Frame("/v/site-packages/torch/x.py", 9, "f"), Frame("/job/train.py", 28, "item"))
        answer = Originated(
            asked_at=self.moments[-1], moment=Moment(1, 2), op="aten::div.Tensor", born=True, what="NaN",
            seen_at=Moment(2, 1), frames=frames, exact=True, stop=None,
        )  # fmt: skip
        return Found(stand=Stand(phase=Phase.STOPPED, moment=Moment(1, 2), reason="until"), answer=answer)

    def value(self, text: str) -> Json:
        self.asked.append(text)
        value = scalar(evaluate(parse(text), Environment(lookup=self._names().__getitem__, functions={})))
        return {**value, "assumed": True} if self.left is not None and self.moments[self.at] > self.left else value

    def _names(self) -> Names:
        moment = self.moments[self.at]
        return {"loss": self.at + 1, "step": moment.step, "op": "all_reduce", "out": self.at}

    def _is_hit(self, number: int, spec: BreakpointSpec) -> bool:
        hit = bool(spec.condition) and bool(self.value(spec.condition)["value"])
        self.asked.pop() if spec.condition else None
        if hit and spec.once:
            self.stops[number] = BreakpointSpec(kind=spec.kind, condition="step < 0")
        return hit


def carried_out(text: str, rank: FakeRank | None = None) -> Findings:
    findings = Findings()
    Runner(rank or FakeRank(), read(text.encode(), "checks.yaml"), END, findings).run()
    return findings


def test_a_rank_that_hangs_again_has_come_to_the_end_only_where_it_came_to_it() -> None:
    end = FakeRank({Moment(3, 2): lambda: Stand(phase=Phase.HUNG, moment=Moment(3, 1))})
    findings = carried_out("expect: [{that: loss == 5, at: end}]", end)
    assert (findings.ending, findings.cut_short) == (Ending.COMPLETE, "")
    before = FakeRank({Moment(2, 2): lambda: Stand(phase=Phase.HUNG, moment=Moment(2, 1))})
    findings = carried_out("expect: [{that: loss == 5, at: end}]", before)
    assert "the rank hung again at 2.1, before 3.1" in findings.cut_short


def test_values_that_are_recorded_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hostile rank may come to a stop without end."""
    monkeypatch.setattr(runner, "MAX_RECORDS_BYTES", 250)
    text = "stop_at: [{name: each, when: loss > 0}]\nrecord: [{name: loss, at: each, value: loss}]\n"
    findings = carried_out(text)
    assert findings.ending is Ending.LOST and "the recorded values are larger than" in findings.cut_short
    assert len(findings.records) < len(FakeRank.moments)


def only(findings: Findings) -> Finding:
    (found,) = findings.checks
    return found


def stops_at(moment: str, **more: Any) -> Callable[[], Stand]:
    return lambda: Stand(**{"phase": Phase.STOPPED, "moment": Moment.parse(moment), **more})


def raises(error: BaseException) -> Callable[[], Stand]:
    def go() -> Stand:
        raise error

    return go


def test_an_expectation_at_a_moment() -> None:
    findings = carried_out("expect:\n - {that: step == 2 and loss == 3, at: 2.1}\n")
    assert (only(findings).outcome, only(findings).hits, findings.ending) == (Outcome.HELD, 1, Ending.COMPLETE)
    assert findings.reached == Moment(3, 2)


def test_one_that_fails_says_where_and_with_what_values() -> None:
    failed = only(carried_out("expect:\n - {that: loss < 3 or step == 7, at: 2.1}\n"))
    assert (failed.outcome, failed.moment, failed.message) == (Outcome.FAILED, Moment(2, 1), "it is False")
    assert failed.values == {"loss": "3", "step": "2"}
    assert failed.place == "checks.yaml:2:4"


def test_at_each_hit_of_a_stop_and_the_first_failure_stays() -> None:
    text = "stop_at: [{name: late, when: loss > 2}]\nexpect:\n - {that: loss > 0, at: late}\n"
    assert only(carried_out(text)).hits == 4
    failed = only(carried_out(text.replace("loss > 0", "loss < 4")))
    assert (failed.moment, failed.hits) == (Moment(2, 2), 2)


def test_what_was_never_looked_at_failed() -> None:
    for text in (
        "stop_at: [{name: never, when: loss > 99}]\nexpect:\n - {that: loss > 0, at: never}\n",
        "run_to: 9\nexpect:\n - {that: loss > 0, at: 8.1}\n",
    ):
        found = only(carried_out(text))
        assert (found.outcome, found.hits) == (Outcome.FAILED, 0)
        assert "never checked: the replay ended at 3.2" in found.message


def test_a_moment_that_never_was() -> None:
    found = only(carried_out("expect:\n - {that: loss > 0, at: 1.7}\n"))
    assert found.message == "1.7 does not exist in this run: the rank went from 0.0 to 2.1"


@pytest.mark.parametrize(("at", "run_to"), [("2", "2.1"), ("2.1", "2"), ("2", "2"), ("end", "2")])
def test_a_step_is_its_first_collective(at: str, run_to: str) -> None:
    text = f"run_to: {run_to}\nexpect: [{{that: loss == 3, at: {at}}}]\nrecord: [{{name: l, value: loss, at: {at}}}]\n"
    findings = carried_out(text)
    assert (only(findings).outcome, only(findings).message, findings.reached) == (Outcome.HELD, "", Moment(2, 1))
    assert [(str(record.moment), record.text) for record in findings.records] == [("2.1", "3")]


def test_a_moment_that_was_come_to_on_the_way_to_one_that_never_was() -> None:
    findings = carried_out("expect:\n - {that: loss > 0, at: 1.7}\n - {that: loss == 3, at: 2.1}\n")
    assert [check.outcome for check in findings.checks] == [Outcome.FAILED, Outcome.HELD]


def test_of_several_moments_that_never_were_each_is_told_where_the_rank_went_instead() -> None:
    findings = carried_out("expect:\n - {that: loss > 0, at: 1.7}\n - {that: loss > 1, at: 1.8}\n")
    texts = [check.message for check in findings.checks]
    assert texts == [f"1.{at} does not exist in this run: the rank went from 0.0 to 2.1" for at in (7, 8)]


@pytest.mark.parametrize(
    ("at", "note"),
    [
        ("1.7", "l is not recorded: 1.7 does not exist in this run: the rank went from 0.0 to 2.1"),
        ("8", "l is not recorded: the replay ended at 3.2, before 8.1"),
        ("2.1", ""),
    ],
)
def test_a_value_that_is_not_recorded_is_said(at: str, note: str) -> None:
    findings = carried_out(f"run_to: 9\nrecord: [{{name: l, value: loss, at: {at}}}]\n")
    assert findings.notes == ([note] if note else [])


@pytest.mark.parametrize(("target", "goes_on_to"), [("2.1", "2.2"), ("2.0.5", "2.1"), ("2", "2.1")])
def test_behind_an_exception_the_rank_goes_on_to_what_comes_next(target: str, goes_on_to: str) -> None:
    """What lies behind it is not before it, whatever moment it is told with."""

    asked: list[Moment | None] = []

    class Raises(FakeRank):
        def go(self, until: Moment | None) -> Stand:
            asked.append(until)
            return super().go(until)

    raised = Moment(2, 0) if target != "2.1" else Moment(2, 1)
    moments = tuple(sorted({*FakeRank.moments, raised}))
    rank = Raises({raised: stops_at(str(raised), reason="exception")}, moments=moments)
    carried_out(f"expect: [{{that: loss > 0, at: {target}}}]\n", rank)
    assert str(asked[1]) == goes_on_to


def test_a_check_at_the_end_is_at_b_or_where_the_script_ends() -> None:
    assert only(carried_out("expect:\n - {that: loss == 5, at: end}\n")).outcome is Outcome.HELD
    findings = carried_out("run_to: 2.2\nexpect:\n - {that: loss == 4, at: end}\n")
    assert (only(findings).outcome, findings.reached) == (Outcome.HELD, Moment(2, 2))


def test_what_is_forbidden() -> None:
    assert only(carried_out("forbid:\n - {when: loss > 99}\n")).outcome is Outcome.HELD
    findings = carried_out("forbid:\n - {when: loss == 2}\nrecord:\n - {name: l, value: loss, at: 3.1}\n")
    found = only(findings)
    assert (found.outcome, found.moment, found.values) == (Outcome.FAILED, Moment(1, 2), {"loss": "2"})
    assert [record.text for record in findings.records] == ["5"]  # and the replay went on


@pytest.mark.parametrize(
    ("more", "ends_at", "why"),
    [
        ("", "1.2", "the program ended at 1.2, before 3.1"),
        ("", "3.1", ""),
        ("", "3.2", ""),
        ("run_to: 2.2\n", "2.1", "the program ended at 2.1, before 2.2"),
        ("run_to: 2.2\n", "2.2", ""),
        ("run_to: 9.1\n", "3.1", ""),
    ],
)
def test_what_is_to_hold_until_the_end_is_undecided_where_the_program_ended_earlier(
    more: str, ends_at: str, why: str
) -> None:
    rank = FakeRank(moments=tuple(moment for moment in FakeRank.moments if moment <= Moment.parse(ends_at)))
    script = "stop_at: [{name: each, when: loss > 0}]\nforbid:\n - {when: loss > 99}\n"
    findings = carried_out(f"{more}{script}expect:\n - {{that: loss > 0, at: each}}\n", rank)
    assert {check.outcome for check in findings.checks} == {Outcome.UNDECIDED if why else Outcome.HELD}
    assert findings.cut_short == why


def test_what_is_forbidden_is_undecided_where_the_program_comes_nowhere() -> None:
    ended = FakeRank({Moment(1, 1): lambda: Stand(phase=Phase.FINISHED, moment=Moment(0))})
    findings = carried_out("forbid:\n - {when: loss > 99}\n", ended)
    assert only(findings).outcome is Outcome.UNDECIDED
    assert findings.cut_short == "the program ended at 0.0, before 3.1"


def test_an_exception_is_no_place_of_a_collective() -> None:
    """Every debugged rank stops there, whatever stops there are."""
    text = (
        "forbid:\n - {on: exception}\n - {on: exception, when: loss > 99, name: b}\nexpect:\n - {that: step, at: 2.1}\n"
    )
    findings = carried_out(text, FakeRank({Moment(2, 1): stops_at("2.1", reason="exception")}))
    expected, forbidden, conditional = findings.checks
    assert (forbidden.outcome, forbidden.moment) == (Outcome.FAILED, Moment(2, 1))
    assert list(forbidden.values) == ["exception"]
    assert conditional.outcome is Outcome.HELD
    assert expected.message == "2.1 does not exist in this run: the rank went from 0.0 to 2.2"


def test_values_are_recorded_at_each_hit() -> None:
    text = "stop_at: [{name: odd, when: loss % 2 == 1}]\nrecord:\n - {name: loss, value: loss * 10, at: odd}\n"
    assert [(str(r.moment), r.text) for r in carried_out(text).records] == [("1.1", "10"), ("2.1", "30"), ("3.1", "50")]


def test_an_expression_without_a_value() -> None:
    findings = carried_out("expect:\n - {that: lost > 3, at: 1.2}\nrecord:\n - {name: r, value: lost, at: 1.2}\n")
    assert only(findings).outcome is Outcome.FAILED
    assert "unknown name 'lost'" in only(findings).message
    assert findings.records[0].value is None and "unknown name 'lost'" in findings.records[0].text


def test_a_value_that_is_neither_true_nor_false() -> None:
    class Listing(FakeRank):
        def value(self, text: str) -> Json:
            return {"kind": "sequence", "type": "list", "length": 1, "items": [scalar(1)]}

    assert only(carried_out("expect:\n - {that: out, at: 1.2}\n", Listing())).message == (
        "it is neither true nor false: [1]"
    )


CHECKS = "expect:\n - {that: loss > 0, at: 1.2}\n - {that: loss > 1, at: 3.1}\nforbid:\n - {when: loss > 99}\n"


@pytest.mark.parametrize(
    ("fate", "ending"),
    [
        (stops_at("2.1", reason="diverged"), Ending.DIVERGED),
        (stops_at("2.1", phase=Phase.LOST), Ending.LOST),
        (raises(WaitTimeout("not in time")), Ending.TIMEOUT),
        (raises(RankLost("gone")), Ending.LOST),
    ],
)
def test_what_was_not_reached_when_the_replay_was_cut_short_is_undecided(
    fate: Callable[[], Stand], ending: Ending
) -> None:
    findings = carried_out(CHECKS, FakeRank({Moment(2, 1): fate}))
    assert findings.ending is ending
    assert [check.outcome for check in findings.checks] == [Outcome.HELD, Outcome.UNDECIDED, Outcome.UNDECIDED]


@pytest.mark.parametrize("error", [UsageError("no"), KeyboardInterrupt(), SystemExit(143)])
def test_what_is_known_stays_when_it_is_broken_off(error: BaseException) -> None:
    findings = Findings()
    rank = FakeRank({Moment(2, 1): raises(error)})
    with pytest.raises(type(error)):
        Runner(rank, read(CHECKS.encode(), "checks.yaml"), END, findings).run()
    assert findings.ending is Ending.BROKEN and findings.cut_short
    assert [check.outcome for check in findings.checks] == [Outcome.HELD, Outcome.UNDECIDED, Outcome.UNDECIDED]


def test_a_rank_that_dies_while_it_is_looked_at_is_lost() -> None:
    class Dying(FakeRank):
        def value(self, text: str) -> Json:
            raise RankLost("gone")

    findings = carried_out("expect:\n - {that: loss > 0, at: 1.2}\n", Dying())
    assert (findings.ending, only(findings).outcome) == (Ending.LOST, Outcome.UNDECIDED)


def test_what_rests_on_assumed_peers_is_marked() -> None:
    text = "expect:\n - {that: loss > 0, at: 2.1}\n - {that: loss > 4, at: 2.2}\n"
    text += "record:\n - {name: l, value: loss, at: 3.1}\n"
    findings = carried_out(text, FakeRank(left=Moment(2, 1)))
    assert [check.assumed for check in findings.checks] == [False, True]
    assert findings.records[0].assumed


def test_a_condition_without_a_value_is_not_taken_for_no() -> None:
    findings = Findings()
    script = read(b"stop_at: [{name: s, when: loss > 99}]\nforbid:\n - {when: loss > 98}\n", "checks.yaml")
    runner = Runner(FakeRank(), script, END, findings)
    runner.run()
    runner.condition_failed(11, Moment(1, 1), "there is no name x")
    runner.condition_failed(12, Moment(1, 1), "there is no name y")
    assert findings.notes == ["breakpoint s (if loss > 99): its condition has no value at 1.1: there is no name x"]
    assert only(findings).outcome is Outcome.FAILED


def test_a_passed_end_is_gone_beyond_only_when_asked() -> None:
    rank = FakeRank()
    carried_out("expect:\n - {that: loss > 0, at: 1.1}\n", rank)
    assert rank.moments[rank.at] == Moment(3, 2)
    with pytest.raises(PrismError):
        rank.value("nothing")


BACK = "back_to:\n - {name: born, to: origin}\n - {name: no, to: write, of: nowhere}\n"


def test_at_its_end_the_rank_goes_back_and_is_looked_at_there() -> None:
    text = BACK + "expect:\n - {that: loss == 2, at: born}\n - {that: loss == 6, at: end}\n"
    findings = carried_out(text.replace("at: end", "at: 3.2") + "record:\n - {name: l, value: loss, at: born}\n")
    assert [check.outcome for check in findings.checks] == [Outcome.HELD, Outcome.HELD]
    assert [(str(r.moment), r.text) for r in findings.records] == [("1.2", "2")]
    assert (findings.ending, findings.reached) == (Ending.COMPLETE, Moment(3, 2))
    born, no = findings.places
    assert born.to_json() == {
        "name": "born", "to": "origin", "moment": "1.2", "op": "aten::div.Tensor", "file": "/job/train.py", "line": 28,
        "why": "",
    }  # fmt: skip
    assert born.text == "1.2 aten::div.Tensor train.py:28"
    assert no.to_json()["moment"] is None and no.text.startswith("no NaN or infinity")


def test_an_expectation_at_a_place_that_is_not_there_failed() -> None:
    found = only(carried_out(BACK + "expect:\n - {that: loss > 0, at: no}\n"))
    assert (found.outcome, found.moment, found.hits) == (Outcome.FAILED, None, 0)
    assert found.message == "place not found: no NaN or infinity in nowhere up to 3.2"


@pytest.mark.parametrize(
    ("fate", "ending"),
    [(raises(WaitTimeout("late")), Ending.TIMEOUT), (stops_at("2.1", reason="diverged"), Ending.DIVERGED)],
)
def test_who_does_not_come_to_the_end_does_not_go_back(fate: Callable[[], Stand], ending: Ending) -> None:
    findings = carried_out(BACK + "expect:\n - {that: loss > 0, at: born}\n", FakeRank({Moment(2, 1): fate}))
    assert (findings.ending, findings.places, only(findings).outcome) == (ending, [], Outcome.UNDECIDED)


def test_a_rank_that_is_lost_on_the_way_back_is_lost() -> None:
    class Lost(FakeRank):
        def find(self, asked: GoBack) -> Found:
            return Found(stand=Stand(phase=Phase.LOST, moment=Moment(1, 2)), answer=None)

    findings = carried_out(BACK + "expect:\n - {that: loss > 0, at: born}\n", Lost())
    assert (findings.ending, only(findings).outcome) == (Ending.LOST, Outcome.UNDECIDED)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("max(abs(input[0])) < 3 and step > 1", ("input[0]", "step")),
        ("model.layers[3].weight[0, -1] == out[0][1] + out[0][1]", ("model.layers[3].weight[0, -1]", "out[0][1]")),
        ("x[step] > 2", ("x", "step")),
        ("optimizer.state['w'] > 1", ("optimizer.state['w']",)),
        ("1 < 2", ()),
    ],
)
def test_what_an_expression_is_about(text: str, found: tuple[str, ...]) -> None:
    assert operands(parse(text)) == found


@pytest.mark.parametrize(
    ("text", "traced"),
    [
        ("expect:\n - {that: step == 2, at: 2.1.50}\n", True),
        ("record:\n - {name: held, value: step, at: 2.1.1}\n", True),
        ("expect:\n - {that: allocated < 2GiB, at: 2.1}\n", True),
        ("record:\n - {name: held, value: total, at: end}\n", True),
        ("expect:\n - {that: step == 2, at: 2.1}\n", False),
    ],
)
def test_a_rank_is_traced_where_that_is_needed(text: str, traced: bool) -> None:
    rank = FakeRank(moments=(Moment(1, 1), Moment(2, 1), Moment(2, 1, 1), Moment(2, 1, 50), Moment(3, 1)))
    names = rank._names
    rank._names = lambda: {**names(), "allocated": 1, "total": 1}  # type: ignore[method-assign]
    findings = carried_out(text, rank)
    assert rank.traced is traced
    assert [check.outcome for check in findings.checks] in ([Outcome.HELD], [])
    assert all(value.value is not None for value in findings.records)


def test_what_failed_at_a_stop_says_which() -> None:
    findings = carried_out(
        "stop_at: [{name: late, when: step > 1}]\n"
        "expect:\n - {that: loss < 3, at: late}\n - {that: loss > 9, at: 1.1}\n"
        "forbid:\n - {when: loss == 2}\n"
    )
    assert [check.stop for check in findings.checks] == ["late (if step > 1)", "", "if loss == 2"]
    assert findings.checks[0].to_json()["stop"] == "late (if step > 1)"
