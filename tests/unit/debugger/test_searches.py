"""Questions to the past: where the rank stands afterwards, what is named, and what is said where there is nothing."""

from __future__ import annotations

import io
from typing import Any

import pytest

from prismdbg.cli.terminal.repl import run_repl
from prismdbg.debugger.debugger import Debugger, Settings
from prismdbg.debugger.driver import Driver
from prismdbg.debugger.history_queries import HistoryQueries
from prismdbg.debugger.inspection import Inspection
from prismdbg.debugger.routes import Routes
from prismdbg.errors import PrismError, UsageError
from prismdbg.expr.parser import parse
from prismdbg.model.collective import Frame
from prismdbg.model.moment import Moment
from prismdbg.protocol.client import AgentError
from prismdbg.render.answer_text import answer_text
from prismdbg.session import answers, notices
from prismdbg.session.notices import Stopped
from prismdbg.session.query_checks import require_block, require_number, require_written
from prismdbg.session.session import Phase
from tests.unit.simulated_rank import SimulatedRank

DATA, TRAIN = Frame("/job/data.py", 25, "item"), Frame("/job/train.py", 28, "item")
SOURCE = {"filename": "/job/train.py", "function": "main", "line": 7, "first": 7, "lines": ["all_reduce(x)"]}


class Named(SimulatedRank):
    """Knows the name x, and its own source."""

    def ask(self, verb: str, *, timeout_s: float = 30.0, **arguments: Any) -> dict[str, Any]:
        if verb == "evaluate" and "nosuch" in arguments["expression"]:
            raise AgentError("unknown name 'nosuch'", column=arguments["expression"].index("nosuch"))
        if verb == "stops":  # a search's are not hit by anything here
            arguments["stops"] = []
        return SOURCE if verb == "source" else super().ask(verb, timeout_s=timeout_s, **arguments)


def typed(*lines: str) -> str:
    rank, output = Named(), io.StringIO()

    def make(tell: Any) -> Debugger:
        return Debugger(rank, tell, recorded=rank.moments, settings=Settings(bound_s=0.05))

    run_repl(make, lines, output)
    return output.getvalue()


def test_a_name_that_is_not_there_is_the_answer_and_the_rank_stands_where_it_stood() -> None:
    text = typed("goto 2.1", "origin nosuch")
    said = text[text.index("error:") :]
    assert said.startswith("error: unknown name 'nosuch'")
    assert "stopped at 2.1 (as before): broadcast" in said and "all_reduce(x)" in said


@pytest.mark.parametrize(
    ("question", "why", "hint"),
    [
        ("who wrote nosuch", "unknown name 'nosuch'", ""),
        ("who wrote step", "step exists only at this event", "local.step"),
        ("who wrote out[0]", "out exists only at this event", "who allocated out[0] or origin out[0]"),
        ("who wrote x + step", "step exists only at this event", "model.head.weight"),
        ("who wrote allocated", "allocated exists only at this event", "local.allocated"),
        ("who wrote 5", "5 is an int, not a tensor", "break change 5"),
        ("who wrote local.step", "local.step is an int, not a tensor", "reverse-continue"),
        ("who allocated step", "step is an int, not a tensor", "one tensor: who allocated model.head.weight"),
        ("who allocated x + x", "x + x is a result of this expression", "one tensor"),
        ("who allocated nosuch", "unknown name 'nosuch'", ""),
        ("origin step", "step is an int, which is never NaN or infinite", "type `origin` alone"),
        ("origin 5", "5 is an int, which is never NaN or infinite", "loss"),
    ],
)
def test_what_cannot_be_asked_of_the_past_is_refused_before_anything_runs(question: str, why: str, hint: str) -> None:
    rank = Named()
    debugger = Debugger(rank, lambda _: None, recorded=rank.moments, settings=Settings(bound_s=0.05))
    debugger.begin()
    debugger.do("goto 2.1")
    runs = len([verb for verb, _ in rank.asked if verb in ("resume", "trace")])
    with pytest.raises(PrismError) as refused:
        debugger.do(question)
    assert why in str(refused.value) and hint in refused.value.hint
    assert rank.returns == [] and len([verb for verb, _ in rank.asked if verb in ("resume", "trace")]) == runs


TENSOR: dict[str, Any] = {"kind": "tensor", "dtype": "int64", "shape": [2, 0]}


@pytest.mark.parametrize(
    ("value", "written", "block", "number"),
    [
        ({**TENSOR, "dtype": "float32", "shape": [2]}, "", "", ""),
        (TENSOR, "", "has no elements", "of int64, which is never NaN"),
        ({**TENSOR, "dtype": "bfloat16", "shape": []}, "", "", ""),
        ({"kind": "scalar", "type": "float", "value": 1.5}, "a float, not a tensor", "a float, not", ""),
        (
            {"kind": "scalar", "type": "NoneType", "value": None},
            "x is None, not a tensor, and not",
            "x is None, not",
            "x is None, which",
        ),
        ({"kind": "sequence", "type": "list", "length": 1, "items": [TENSOR]}, "", "x is a list of 1, not", ""),
        (
            {"kind": "sequence", "type": "list", "length": 0, "items": []},
            "a list of 0, not a tensor, and not",
            "a list of 0",
            "",
        ),
        ({"kind": "mapping", "type": "dict", "length": 1, "items": [["k", TENSOR]]}, "", "a dict of 1, not", ""),
        ({"kind": "module", "type": "a.Linear", "parameters": 3, "own": []}, "", "a Linear, not", ""),
        (
            {"kind": "module", "type": "a.ReLU", "parameters": 0, "own": []},
            "a ReLU, not a tensor, and not",
            "a ReLU, not",
            "",
        ),
        (
            {"kind": "object", "type": "a.Adam", "fields": [["state", TENSOR]]},
            "an Adam, not a tensor, and not",
            "an Adam, not",
            "",
        ),
        ({"kind": "object", "type": "a.File", "text": "a.File"}, "a File, not a tensor, and not", "a File, not", ""),
    ],
)
def test_what_a_question_can_be_about(value: dict[str, Any], written: str, block: str, number: str) -> None:
    asked = parse("x")
    for required, refusal in (
        (lambda: require_written(asked, value, frozenset(["step"])), written),
        (lambda: require_block(asked, value), block),
        (lambda: require_number(asked, value), number),
    ):
        if not refusal:
            required()
            continue
        with pytest.raises(UsageError) as refused:
            required()
        assert refusal in str(refused.value) and refused.value.hint


def test_what_is_not_found_leaves_the_rank_where_it_stood() -> None:
    text = typed("goto 2.1", "who wrote x")
    assert "error: x was not written between the start moment and 2.1" in text
    assert text.count("stopped at 2.1") == 2


def test_watches_are_of_where_the_rank_stands_then(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was found is not where it was asked."""
    rank = SimulatedRank()
    debugger = Debugger(rank, lambda _: None, recorded=rank.moments, settings=Settings(bound_s=0.05))
    debugger.begin()
    debugger.do("goto 2.1")
    debugger.do("watch x")
    asked_at = debugger.do("goto 2.2")
    queries = HistoryQueries(debugger.driver, debugger.inspection, Routes(debugger.driver))
    monkeypatch.setattr(
        queries, "_first_seen", lambda spec, here: queries._routes.back_to(Moment(1, 1)) or Moment(1, 1)
    )
    monkeypatch.setattr(queries, "_operator", lambda seen, nan_only: None)
    found = queries.origin("")
    assert isinstance(asked_at, answers.Arrived)
    assert [(w.text, w.changed) for w in found.watched] == [("x", True)] != asked_at.watched
    assert found.stop is not None and found.stop.moment == Moment(1, 1)


@pytest.mark.parametrize(
    ("question", "end"), [("origin", Moment(2, 2)), ("origin x", Moment(2, 1))], ids=["data", "value"]
)
def test_the_recorded_nan_is_looked_for_where_the_rank_has_not_come_to_it(
    question: str, end: Moment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The line of the incident offers the key wherever the rank stands."""
    rank, ends = Named(), []
    debugger = Debugger(rank, lambda _: None, recorded=rank.moments, settings=Settings(bound_s=0.05), nan=Moment(2, 2))
    monkeypatch.setattr(HistoryQueries, "_first_seen", lambda _, spec, end: ends.append(end))
    debugger.begin()
    debugger.do("goto 2.1")
    with pytest.raises(UsageError, match=f"up to {end}"):
        debugger.do(question)
    assert ends == [end]


@pytest.mark.parametrize(
    ("question", "stands_at", "is_finite", "asked"),
    [
        ("origin", "1.1", True, "step >= 2"),
        ("origin", "2.1", True, "step >= 2"),
        ("origin", "2.1", False, "step >= 2"),
        ("origin", "1.1", False, ""),  # who stands at one asks about that
        ("origin x", "1.1", True, "not finite(x)"),
    ],
)
def test_overflows_before_the_recorded_nan_are_not_its_origin(
    question: str, stands_at: str, is_finite: bool, asked: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rank, conditions = Named(), []
    settings = Settings(bound_s=0.05)
    debugger = Debugger(rank, lambda _: None, recorded=rank.moments, settings=settings, nan=Moment(2, 2), nan_since=2)
    monkeypatch.setattr(HistoryQueries, "_first_seen", lambda _, spec, end: conditions.append(spec.condition))
    monkeypatch.setattr(HistoryQueries, "_holds", lambda _, text: text.startswith("not") and not is_finite)
    debugger.begin()
    debugger.do(f"goto {stands_at}")
    with pytest.raises(UsageError, match="no NaN or infinity"):
        debugger.do(question)
    assert conditions == [asked]


def test_a_search_that_comes_to_the_programs_end_leaves_the_rank_where_it_stood() -> None:
    """As with a mended program, which does not come to the recorded NaN."""
    rank = Named()
    debugger = Debugger(rank, lambda _: None, recorded=rank.moments, settings=Settings(bound_s=0.05), nan=Moment(9, 1))
    debugger.begin()
    debugger.do("goto 2.1")
    with pytest.raises(UsageError, match="no NaN or infinity"):
        debugger.do("origin")
    assert (debugger.session.phase, debugger.session.moment) == (Phase.STOPPED, Moment(2, 1))


def test_the_moment_asked_about_is_said() -> None:
    stands: dict[str, Any] = {"asked_at": Moment(3, 2), "text": "loss", "frames": (DATA,), "stop": None}
    wrote = answers.Wrote(**stands, moment=Moment(3, 1, 4), after=Moment(3, 1), op="aten::div", exact=True)
    assert answer_text(wrote) == "as of 3.2, loss was last written at 3.1.4, by aten::div, /job/data.py:25 in item"
    vague = answers.Wrote(**stands, moment=Moment(3, 1), after=Moment(2, 9), op="", exact=False)
    assert answer_text(vague) == "as of 3.2, loss was last written between 2.9 and 3.1, /job/data.py:25 in item"
    old = answers.Allocated(**stands, moment=Moment(0), op="", size_bytes=4, before=True)
    assert answer_text(old).startswith("as of 3.2, loss is in a block of 4 B that is older than the trace")


SLICE, SELECT, MUL = ("aten::slice", DATA), ("aten::select", DATA), ("aten::select", TRAIN)


@pytest.mark.parametrize(
    ("at", "stands"),
    [
        pytest.param({9: SLICE, 10: SELECT, 11: MUL}, 11, id="the microscope counts less"),
        pytest.param({6: MUL, 7: SLICE, 8: MUL, 9: SELECT, 10: SLICE}, 8, id="it counts more"),
        pytest.param({8: SLICE, 9: SELECT, 10: ("aten::linear", TRAIN)}, 10, id="it is a part of another"),
        pytest.param({8: SLICE, 9: SELECT, 10: SLICE}, 9, id="it is not found again"),
    ],
)
def test_the_rank_stands_at_the_operator_that_is_named(
    at: dict[int, tuple[str, Frame]], stands: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The microscope names the ninth operator, and counts them otherwise than the tracer does."""
    rank, told = SimulatedRank(), list[notices.Notice]()
    debugger = Debugger(rank, told.append, settings=Settings(bound_s=0.05))
    driver: Driver = debugger.driver
    routes = Routes(driver)
    inspection = Inspection(driver, routes.need_trace)

    def stand(op: int) -> None:
        call = {"kind": "op", "profiling_name": at[op][0]} if op in at else {}
        debugger.session.resumed()
        debugger.session.notice(Stopped(moment=Moment(1, 0, op), reason="step", collective=call))

    monkeypatch.setattr(routes, "back_to", lambda moment: stand(max(moment.op, min(at))))
    monkeypatch.setattr(routes, "between", lambda **_: stand(debugger.session.moment.op + 1))
    monkeypatch.setattr(
        inspection, "stack", lambda: answers.Stack(frames=(at[debugger.session.moment.op][1],), chosen=0)
    )
    frame = {"filename": TRAIN.filename, "line": TRAIN.line, "name": TRAIN.name}
    found = {"op": "aten::select.int", "moment": "1.0.9", "frames": [frame]}
    assert HistoryQueries(driver, inspection, routes)._back_to_operator(found) == Moment(1, 0, stands)
    assert debugger.session.moment == Moment(1, 0, stands)
    lost = any(isinstance(notice, notices.Said) and "was not found again" in notice.text for notice in told)
    assert lost == (MUL not in at.values() and stands == 9)


def test_the_progress_of_a_search_says_which_pass_it_is() -> None:
    rank = Named()
    told: list[notices.Notice] = []
    debugger = Debugger(rank, told.append, recorded=rank.moments, settings=Settings(bound_s=0.05))
    debugger.begin()
    debugger.do("goto 2.1")
    for passes in (2, 1):  # the first search has the rank traced before; it is counted anew for each command
        told.clear()
        with pytest.raises(UsageError, match="no NaN or infinity"):
            debugger.do("origin")
        (found,) = (notice for notice in told if isinstance(notice, notices.Progress) and "searching" in notice.text)
        assert found.passes == passes
