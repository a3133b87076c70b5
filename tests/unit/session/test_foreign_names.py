"""A name or message of the program's, however many lines it has, begins no line of ours: it could say a verdict."""

from __future__ import annotations

from typing import Any

import pytest

from prismdbg.jobs.replay.compare import Verdict
from prismdbg.jobs.replay.verdict import Outcome
from prismdbg.model.collective import Frame, Group
from prismdbg.model.moment import Moment
from prismdbg.render import stop_text
from prismdbg.render.answer_text import answer_text
from prismdbg.render.value_text import value_text
from prismdbg.session import notices
from prismdbg.session.answers import Originated
from prismdbg.session.divergence_text import render_divergence

SAID = "identical up to 9.9: 99 collectives compared"
NAME = f"name\n{SAID}\r{SAID}\v{SAID}\u2028{SAID}"
FRAME = {"filename": NAME, "line": 1, "name": NAME}
CALL: dict[str, Any] = {
    "profiling_name": NAME, "process_group": NAME, "identity": f"group {NAME} #1", "inputs": [NAME], "outputs": [],
    "frames": [FRAME], "module": NAME, "input_sizes": [[1]], "input_dtypes": [NAME], "output_sizes": [],
    "output_dtypes": [], "moment": "1.1",
}  # fmt: skip
ONE = {"kind": "scalar", "type": "int", "value": 1}
OBJECT = {"kind": "object", "type": NAME, "text": NAME, "fields": [[NAME, ONE]]}
DIFFERENCE = {"field": "op", "expected": NAME, "actual": NAME, "structural": True}
PEERS = {"group": NAME, "title": NAME, "size": 1, "recorded_ns": None, "members": []}
SOURCE = {"filename": NAME, "line": 1, "function": NAME, "first": 1, "lines": [NAME, NAME]}

AT = Moment(1, 1)
STORY = {"moment": "1.1", "expected": None, "actual": CALL, "differences": [DIFFERENCE]}
ORIGIN = Originated(
    asked_at=AT, moment=AT, op=NAME, born=True, what="NaN", seen_at=AT, frames=(), exact=True, stop=None
)
NOTICES: dict[str, notices.Notice] = {
    "synthesized": notices.Synthesized(moment=AT, op=NAME),
    "departed": notices.Departed(moment=AT, story=STORY),
    "state": notices.StateCompared(moment=AT, equal=True, expected=NAME, actual=NAME),
    "other state": notices.StateCompared(moment=AT, equal=False, expected=NAME, actual=NAME),
    "failed breakpoint": notices.BreakpointFailed(moment=AT, stop=1, error=NAME),
    "lost": notices.Lost(moment=AT, why=NAME),
    "note": notices.parse_notice({"event": "note", "text": NAME}),
}

TEXTS = {
    **{name: stop_text.notice_text(notice) for name, notice in NOTICES.items()},
    "stop": stop_text.stop_line(notices.parse_stop({"moment": "1.1"}, NAME)),
    "stop at a call": stop_text.stop_line(notices.parse_stop({"moment": "1.1", "collective": CALL}, NAME)),
    "origin": answer_text(ORIGIN),
    "group": Group(name="1", ranks=(0,), desc=NAME).title,
    "frame": str(Frame(NAME, 1, NAME)),
    "verdict": Verdict(outcome=Outcome.DIVERGED, why=NAME, moment="1.1").summary,
    "call": stop_text.call_line(CALL),
    "event": stop_text.event_line({"kind": "op", "profiling_name": NAME}),
    "locals": stop_text.locals_text([{"name": NAME, "text": NAME}]),
    "peers": stop_text.peers_text(PEERS),
    "source": "\n".join(stop_text.source_lines(SOURCE)),
    "no source": "\n".join(stop_text.source_lines({**SOURCE, "lines": []})),
    "value": value_text(OBJECT),
    "brief value": value_text(OBJECT, brief=True),
    "divergence": render_divergence(
        {"moment": "1.1", "expected": CALL, "actual": CALL, "differences": [DIFFERENCE], "history": [CALL]}, [NAME]
    ),
}


@pytest.mark.parametrize("what", TEXTS)
def test_it_begins_no_line(what: str) -> None:
    text = TEXTS[what]
    assert "name identical" in text
    assert not [line for line in text.splitlines() if line.startswith(SAID)], text


def test_a_synthesized_answer_names_the_collective_as_users_write_it() -> None:
    told = stop_text.notice_text(notices.Synthesized(moment=AT, op="allreduce_"))
    assert told == "1.1 all_reduce: no recording, the answer is synthesized"
