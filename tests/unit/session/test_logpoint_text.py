"""What a logpoint prints: its own text with the values that the rank sent, and what they are worth."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from prismdbg.errors import UsageError
from prismdbg.model.moment import Moment
from prismdbg.render.stop_text import logpoint_text, notice_text
from prismdbg.session.breakpoint_check import check
from prismdbg.session.breakpoint_line import parse_breakpoint
from prismdbg.session.known import NOTHING
from prismdbg.session.notices import Hit, parse_notice
from prismdbg.session.session import Session

CALL = {"profiling_name": "all_reduce", "process_group": "0", "group_title": "world"}
NORM = {"kind": "tensor", "shape": [], "values": 3.25}


def hit(message: str, *values: dict[str, Any]) -> Hit:
    return Hit(moment=Moment(3, 1), stop=1, title="all_reduce", collective=CALL, message=message, values=values)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (NORM, "norm=3.25"),
        (NORM | {"sharded": {"shape": [], "placements": ["P"]}}, "norm=3.25 (this rank's part)"),
        (NORM | {"assumed": True}, "norm=3.25 (depends on synthesized peers)"),
        ({"kind": "scalar", "type": "str", "value": "a\nb"}, "norm=a b"),
        ({"kind": "object", "type": "list", "text": "list of 2"}, "norm=list of 2"),
    ],
)
def test_a_number_is_told_with_what_it_is_worth(value: dict[str, Any], text: str) -> None:
    assert logpoint_text(hit("norm={norm}", value)) == text
    assert notice_text(hit("norm={norm}", value)) == f"3.1 {text}"


def test_a_session_knows_the_text_of_a_hit() -> None:
    session = Session(None, ())
    number = session.breakpoints.add(replace(parse_breakpoint("all_reduce"), log_only=True, message="{seq}")).number
    event = {"event": "hit", "moment": "3.1", "stop": number, "collective": CALL, "values": [NORM]}
    told = session.named(parse_notice(event))
    assert isinstance(told, Hit) and logpoint_text(told) == "3.25" and told.title == "all_reduce"


def test_a_rank_with_an_older_prismdbg_sends_no_values() -> None:
    told = logpoint_text(hit("{moment} {op} on {group}: {loss}"))
    assert told == "3.1 all_reduce on world: <not sent by the older prismdbg in the capsule>"
    assert logpoint_text(hit("")) is None and "hit by all_reduce" in notice_text(hit(""))


@pytest.mark.parametrize("kind", ["exception", "divergence"])
def test_where_the_rank_stops_in_any_case_there_is_no_logpoint(kind: str) -> None:
    with pytest.raises(UsageError, match="always stops there"):
        check(replace(parse_breakpoint(kind), log_only=True), NOTHING)
