"""Questions to the past: where the rank stands afterwards, what is named, and what is said where there is nothing."""

from __future__ import annotations

import io
from typing import Any

import pytest
from simulated_rank import SimulatedRank

from prismdbg.cli.answer_text import answer_text
from prismdbg.cli.repl import run_repl
from prismdbg.model.collective import Frame
from prismdbg.model.moment import Moment
from prismdbg.protocol.client import AgentError
from prismdbg.session import answers, notices
from prismdbg.session.notices import Stopped
from prismdbg.workflows.debugger import Debugger, Settings
from prismdbg.workflows.driver import Driver
from prismdbg.workflows.looks import Looks
from prismdbg.workflows.searches import Searches
from prismdbg.workflows.ways import Ways

DATA, TRAIN = Frame("/job/data.py", 25, "item"), Frame("/job/train.py", 28, "item")
SOURCE = {"filename": "/job/train.py", "function": "main", "line": 7, "first": 7, "lines": ["all_reduce(x)"]}


class Named(SimulatedRank):
    """Knows the name x, and its own source."""

    def ask(self, verb: str, *, timeout_s: float = 30.0, **arguments: Any) -> dict[str, Any]:
        if verb == "evaluate" and "nosuch" in arguments["expression"]:
            raise AgentError("there is no name 'nosuch' here")
        if verb == "stops":  # a search's are not hit by anything here
            arguments["stops"] = []
        return SOURCE if verb == "source" else super().ask(verb, timeout_s=timeout_s, **arguments)


def typed(*lines: str) -> str:
    rank, output = Named(), io.StringIO()

    def make(tell: Any) -> Debugger:
        return Debugger(rank, tell, recorded=rank.moments, settings=Settings(bound_s=0.05))

    run_repl(make, lines, output)
    return output.getvalue()


@pytest.mark.parametrize("question", ["origin nosuch", "who wrote nosuch"])
def test_a_name_that_is_not_there_is_the_answer_and_the_rank_stands_where_it_stood(question: str) -> None:
    text = typed("goto 2.1", question)
    said = text[text.index("error:") :]
    assert said.startswith("error: there is no name 'nosuch' here")
    assert "stopped at 2.1 (as before): broadcast" in said and "all_reduce(x)" in said


def test_what_is_not_found_leaves_the_rank_where_it_stood() -> None:
    text = typed("goto 2.1", "who wrote x")
    assert "error: x was not written between the capsule's beginning and 2.1" in text
    assert text.count("stopped at 2.1") == 2


def test_watches_are_of_where_the_rank_stands_then(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was found is not where it was asked."""
    rank = SimulatedRank()
    debugger = Debugger(rank, lambda _: None, recorded=rank.moments, settings=Settings(bound_s=0.05))
    debugger.begin()
    debugger.do("goto 2.1")
    debugger.do("watch x")
    asked_at = debugger.do("goto 2.2")
    searches = Searches(debugger.driver, debugger.looks, Ways(debugger.driver))
    monkeypatch.setattr(
        searches, "_first_seen", lambda spec, here: searches._ways.back_to(Moment(1, 1)) or Moment(1, 1)
    )
    monkeypatch.setattr(searches, "_operator", lambda seen, nan_only: None)
    found = searches.origin("")
    assert isinstance(asked_at, answers.Arrived)
    assert [(w.text, w.changed) for w in found.watched] == [("x", True)] != asked_at.watched
    assert found.stop is not None and found.stop.moment == Moment(1, 1)


def test_the_moment_asked_about_is_said() -> None:
    stands: dict[str, Any] = {"asked_at": Moment(3, 2), "text": "loss", "frames": (DATA,), "stop": None}
    wrote = answers.Wrote(**stands, moment=Moment(3, 1, 4), after=Moment(3, 1), op="aten::div", exact=True)
    assert answer_text(wrote) == "as of 3.2, loss was last written at 3.1.4, by aten::div, /job/data.py:25 in item"
    vague = answers.Wrote(**stands, moment=Moment(3, 1), after=Moment(2, 9), op="", exact=False)
    assert answer_text(vague) == "as of 3.2, loss was last written between 2.9 and 3.1, /job/data.py:25 in item"
    old = answers.Allocated(**stands, moment=Moment(0), op="", size_bytes=4, before=True)
    assert answer_text(old).startswith("as of 3.2, loss lies in a block of 4 B that is older than the trace")


def test_an_operator_is_looked_for_by_its_line_where_its_number_is_another_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Operators 9 to 11: the microscope's ninth is the eleventh otherwise."""
    rank, told = SimulatedRank(), list[notices.Notice]()
    debugger = Debugger(rank, told.append, settings=Settings(bound_s=0.05))
    driver: Driver = debugger.driver
    ways = Ways(driver)
    looks = Looks(driver, ways.need_trace)
    at = {9: ("aten::slice", DATA), 10: ("aten::select", DATA), 11: ("aten::select", TRAIN)}

    def stand(op: int) -> None:
        call = {"kind": "op", "profiling_name": at[op][0]}
        debugger.session.notice(Stopped(moment=Moment(1, 0, op), reason="step", collective=call))

    monkeypatch.setattr(ways, "back_to", lambda moment: stand(moment.op))
    monkeypatch.setattr(ways, "between", lambda **_: stand(debugger.session.moment.op + 1))
    monkeypatch.setattr(looks, "stack", lambda: answers.Stack(frames=(at[debugger.session.moment.op][1],), chosen=0))
    frame = {"filename": TRAIN.filename, "line": TRAIN.line, "name": TRAIN.name}
    found = {"op": "aten::select.int", "moment": "1.0.9", "frames": [frame]}
    assert Searches(driver, looks, ways)._back_to_operator(found) == Moment(1, 0, 11)
    assert debugger.session.moment == Moment(1, 0, 11)
