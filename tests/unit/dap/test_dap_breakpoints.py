"""Breakpoints as clients set them, in the session's list."""

from __future__ import annotations

from typing import Any

import pytest
from capsules import make_capsule

from prismdbg.dap.arguments import Arguments
from prismdbg.dap.breakpoints import Breakpoints
from prismdbg.dap.sources import Sources
from prismdbg.model.breakpoints import BreakpointKind
from prismdbg.session.breakpoints import BreakpointList
from prismdbg.session.known import Known

KNOWN = Known(
    lines=frozenset([("/job/train.py", 61), ("/job/train.py", 70), ("/job/parts/train.py", 5)]),
    files=frozenset(["/job/train.py", "/job/parts/train.py"]),
    words=frozenset(["loss"]),
)


class Client:
    def __init__(self, folder: Any, first_line: int = 1, nan_since: int = 0) -> None:
        self.kept = BreakpointList()
        self.breakpoints = Breakpoints(self.kept, KNOWN, Sources(make_capsule(folder), KNOWN), first_line, nan_since)

    def ask(self, command: str, **arguments: Any) -> list[dict[str, Any]]:
        answer = self.breakpoints.requests()[command](Arguments(arguments, command))
        return answer["breakpoints"]  # type: ignore[no-any-return]

    def at(self, path: str, *breakpoints: dict[str, Any]) -> list[dict[str, Any]]:
        return self.ask("setBreakpoints", source={"path": path}, breakpoints=list(breakpoints))


@pytest.fixture
def client(tmp_path: Any) -> Client:
    return Client(tmp_path / "capsule")


def test_a_file_is_the_one_with_most_of_its_path_in_common(client: Client) -> None:
    (first,) = client.at("/home/me/parts/train.py", {"line": 5})
    assert first["source"]["path"] == "/job/parts/train.py" and first["verified"]
    (other,) = client.at("/home/me/train.py", {"line": 61})
    assert other["source"]["path"] in ("/job/train.py", "/job/parts/train.py")
    (unknown,) = client.at("/home/me/other.py", {"line": 61})
    assert not unknown["verified"] and "no file other.py; use one of: train.py" in unknown["message"]
    assert client.ask("breakpointLocations", source={"path": "/job/train.py"}, line=60, endLine=80) == [
        {"line": 61},
        {"line": 70},
    ]


def test_lines_may_be_counted_from_0(tmp_path: Any) -> None:
    client = Client(tmp_path / "capsule", first_line=0)
    (answer,) = client.at("/job/train.py", {"line": 60})
    assert answer["line"] == 60 and client.kept.all[0].line == 61


def test_what_is_sent_again_keeps_its_number_and_the_rest_goes(client: Client) -> None:
    first, second = client.at("/job/train.py", {"line": 61}, {"line": 70})
    (kept,) = client.at("/job/train.py", {"line": 70})
    assert kept["id"] == second["id"] and [spec.number for spec in client.kept.all] == [second["id"]]
    again, new = client.at("/job/train.py", {"line": 70}, {"line": 70, "condition": "step > 1"})
    assert again["id"] == second["id"] and new["id"] not in (first["id"], second["id"])
    assert [spec.condition for spec in client.kept.all] == ["", "step > 1"]
    assert client.at("/job/train.py") == [] and not client.kept.all


@pytest.mark.parametrize(
    ("text", "ignored"), [("", 0), ("1", 0), ("3", 2), (" >= 3 ", 2), (">3", 3), ("== 3", None), ("% 2", None)]
)
def test_hit_conditions(client: Client, text: str, ignored: int | None) -> None:
    (answer,) = client.at("/job/train.py", {"line": 61, "hitCondition": text})
    assert answer["verified"] is (ignored is not None)
    assert [spec.ignore for spec in client.kept.all] == ([ignored] if ignored is not None else [])


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"line": 61, "condition": "step >"}, "expression"),
        ({"line": 61, "logMessage": "{lost} is bad"}, "unknown name 'lost'"),
        ({"line": 0}, "0 is not a line"),
    ],
)
def test_one_that_cannot_be_set_says_why_and_the_others_are_set(
    client: Client, given: dict[str, Any], problem: str
) -> None:
    wrong, right = client.at("/job/train.py", given, {"line": 70})
    assert not wrong["verified"] and "id" not in wrong and "\n" not in wrong["message"]
    assert right["verified"] and len(client.kept.all) == 1
    assert problem in wrong["message"] or problem == "expression"


def test_functions_exceptions_and_data(client: Client) -> None:
    reduce, peer, bad = client.ask(
        "setFunctionBreakpoints",
        breakpoints=[{"name": "all_reduce"}, {"name": "peer 2"}, {"name": "all_reduce if step > 1", "condition": "1"}],
    )
    assert reduce["verified"] and peer["verified"] and "two conditions" in bad["message"]
    nan, more, unknown = client.ask(
        "setExceptionBreakpoints",
        filters=["nan"],
        filterOptions=[{"filterId": "nan", "condition": "step > 3"}, {"filterId": "x"}],
    )
    assert nan["verified"] and more["verified"] and "unknown exception filter" in unknown["message"]
    changed, read = client.ask(
        "setDataBreakpoints", breakpoints=[{"dataId": "nan(out[0])"}, {"dataId": "out[0]", "accessType": "read"}]
    )
    assert changed["verified"] and "not for access 'read'" in read["message"]
    kinds = [spec.kind for spec in client.kept.all]
    assert kinds == [
        BreakpointKind.COLLECTIVE, BreakpointKind.PEER, BreakpointKind.NAN, BreakpointKind.NAN, BreakpointKind.CHANGE,
    ]  # fmt: skip
    for number, reason in ((reduce, "function breakpoint"), (nan, "exception"), (changed, "data breakpoint")):
        assert client.breakpoints.reason([number["id"]]) == reason
    assert client.breakpoints.reason([99]) == "breakpoint"


def test_the_filter_lets_values_before_the_incident_pass_unless_the_client_has_a_condition(tmp_path: Any) -> None:
    client = Client(tmp_path / "capsule", nan_since=11)
    client.ask("setExceptionBreakpoints", filters=["nan"], filterOptions=[{"filterId": "nan", "condition": "step > 3"}])
    assert [spec.condition for spec in client.kept.all] == ["step >= 11", "step > 3"]


def test_a_logpoint_prints_its_own_text(client: Client) -> None:
    text = "{moment}: {op}, loss={local.loss}"
    good, broken, unknown = client.at(
        "/job/train.py", *({"line": 61, "logMessage": each} for each in (text, "{loss", "{sice}"))
    )
    (spec,) = client.kept.all
    assert good["verified"] and spec.log_only and spec.message == text
    assert "no other one" in broken["message"] and "id" not in broken
    assert "unknown name 'sice'" in unknown["message"] and "id" not in unknown
