"""Scripts are read strictly: what is not in the language is refused, with the place, before anything starts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prismdbg.errors import UsageError
from prismdbg.model.breakpoints import BreakpointKind
from prismdbg.model.moment import Moment
from prismdbg.script.language import Answers, BackTo, Count, Script, Seconds, SourceLine
from prismdbg.script.nodes import MAX_SCRIPT_BYTES
from prismdbg.script.reader import read, read_file
from prismdbg.script.schema import json_schema

GOLDEN = Path(__file__).parents[2] / "golden" / "script-schema.json"

WHOLE = """\
time_limit: 90.5
run_to: 19.10
peers:
  - {from: 12.1, until: 13, ranks: [1, 3], group: dp, answer: noise, seed: 7}
  - {ranks: [2], late: 2}
stop_at:
  - name: loss
    op: all_reduce
    group: world
    line: train.py:61
    when: "numel(input) == 1"
    ignore: 2
  - name: head
    on: change
    value: model.head.weight
back_to:
  - {name: born, to: origin}
  - {name: last write, to: write, of: model.head.weight}
expect:
  - name: the loss is a number
    that: finite(out) and op == "all_reduce"
    at: loss
  - that: step == 19
    at: 19.1
  - that: op == "aten::div"
    at: born
forbid:
  - on: exception
  - when: nan(input)
    name: no NaN leaves
record:
  - {name: loss, value: "out[0] / 4", at: end}
"""


def script(text: str) -> Script:
    return read(text.encode(), "checks.yaml")


def refused(text: str) -> str:
    with pytest.raises(UsageError) as raised:
        script(text)
    return f"{raised.value}\n{raised.value.hint}"


def expecting(text: str) -> str:
    return f"expect:\n  - {text}\n"


def test_a_whole_script() -> None:
    read_ = script(WHOLE)
    assert (read_.time_limit, read_.run_to) == (Seconds(90.5), Moment(19, 10))
    first, second = read_.peers
    assert (first.since, first.until, first.ranks) == (Moment(12, 1), Moment(13, 1), (Count(1), Count(3)))
    assert (first.group, first.answer, first.seed) == ("dp", Answers.NOISE, Count(7))
    assert (second.since, second.late, second.answer) == (Moment(0), Seconds(2), None)
    loss, head = read_.stop_at
    assert (loss.on, loss.op, loss.line, loss.ignore) == (
        BreakpointKind.COLLECTIVE, "all_reduce", SourceLine("train.py", 61), Count(2),
    )  # fmt: skip
    assert head.on is BreakpointKind.CHANGE and head.value is not None and head.value.text == "model.head.weight"
    assert [check.title for check in read_.expect] == ["the loss is a number", "step == 19", 'op == "aten::div"']
    born, write = read_.back_to
    assert (born.name.text, born.to, born.of) == ("born", BackTo.ORIGIN, None)
    assert write.to is BackTo.WRITE and write.of is not None and write.of.text == "model.head.weight"
    assert [check.title for check in read_.forbid] == ["never exception", "no NaN leaves"]
    assert read_.record[0].value.text == "out[0] / 4"


def test_a_moment_is_what_is_written_not_a_number() -> None:
    """YAML takes 12.10 for 12.1."""
    assert script(expecting("{that: step, at: 12.10}")).expect[0].at.moment == Moment(12, 10)
    assert script(expecting("{that: step, at: 12.3.4}")).expect[0].at.moment == Moment(12, 3, 4)


@pytest.mark.parametrize(
    ("text", "place", "said"),
    [
        ("expect: []\n", "1:1", "has nothing to do"),
        ("", "1:1", "is empty"),
        ("# only talk\n", "1:1", "is empty"),
        ("- expect\n", "1:1", "expected a mapping"),
        ("expect:\n", "1:8", "a value is missing here; expected a list"),
        ("expekt: []\n", "1:1", "did you mean 'expect'?"),
        (expecting("thta: step\n    at: end"), "2:5", "did you mean 'that'?"),
        (expecting("at: end"), "2:5", "the key 'that' is missing"),
        (expecting("that: step\n    at: end\n    that: step"), "4:5", "'that' is given twice"),
        (expecting("that: [1]\n    at: end"), "2:11", "expected a single value, found a list"),
        (expecting("that:\n    at: end"), "2:10", "a value is missing here"),
        (expecting("that: step <\n    at: end"), "2:17", ""),
        (expecting("that: finite(out) and sin(1)\n    at: end"), "2:27", "sin"),
        (expecting('that: "1 2"\n    at: end'), "2:14", "not expected"),
        (expecting("that: step\n    at: 12.x"), "3:9", "is not a moment"),
        (expecting("that: step\n    at: losss"), "3:9", "unknown breakpoint or place 'losss'"),
        (expecting("that: step\n    at: 3.1\n    name: 7"), "4:11", "put it in quotes"),
        ("run_to: 2\n" + expecting("that: step\n    at: 3.1"), "4:9", "after run_to"),
        ("time_limit: 0\n", "1:13", "number of seconds"),
        ("time_limit: .inf\n", "1:13", "number of seconds"),
        ("stop_at: [{name: end}]\n", "1:18", "is not a name"),
        ("stop_at: [{name: a, on: tuesday}]\n" + expecting("{that: step, at: a}"), "1:25", "not one of collective"),
        ("stop_at: [{name: a, op: al_reduce}]\n" + expecting("{that: step, at: a}"), "1:11", "mean all_reduce?"),
        ("stop_at: [{name: a, line: train.py}]\n", "1:27", "write train.py:61"),
        ("stop_at: [{name: a, once: yes}]\n", "1:27", "expected true or false"),
        ("stop_at: [{name: a, seq: 1.5}]\n", "1:26", "whole number"),
        ("stop_at: [{name: a}, {name: a}]\n" + expecting("{that: step, at: a}"), "1:22", "the name of the entry at"),
        ("stop_at: [{name: a, on: peer}]\n" + expecting("{that: step, at: a}"), "1:11", "needs the key peer"),
        ("back_to: [{name: a, to: write}]\n", "1:11", "needs the key of"),
        ("back_to: [{name: a}]\n", "1:11", "the key 'to' is missing"),
        ("back_to: [{name: a, to: birth}]\n", "1:25", "not one of origin, write, allocation"),
        ("stop_at: [{name: a}]\nback_to: [{name: a, to: origin}]\n", "2:11", "the name of the entry at"),
        ("forbid: [{on: allocation}]\n", "1:10", "needs the key when"),
        ("forbid: [{on: nan}, {on: nan}]\n", "1:21", "give each its own"),
        ("peers: [{late: 2, missing: true}]\nforbid: [{on: nan}]\n", "1:9", "both late and missing"),
        ("peers: [{from: 3}]\nforbid: [{on: nan}]\n", "1:9", "assumes nothing"),
        ("peers: [{from: 3, until: 2.9}]\nforbid: [{on: nan}]\n", "1:9", "ends at 2.9"),
        ("expect: [\n", "2:1", ""),
        ("a: &x 1\nb: *x\n", "2:4", "alias"),
        ("expect: !!python/object:os.system x\n", "1:9", "expected a list"),
        ("forbid: [{on: nan}]\n---\nforbid: [{on: nan}]\n", "2:1", ""),
        ("[" * 5000, "1:33", "nested too deeply"),
        ("a: 1\nexpect: \0\n", "2:9", "not allowed in YAML"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(text: str, place: str, said: str) -> None:
    message = refused(text)
    assert message.startswith(f"checks.yaml:{place}: "), message
    assert said in message


def test_an_expression_gets_its_caret() -> None:
    assert refused(expecting("that: step >= 2 and missing(out)\n    at: end")).splitlines()[1:3] == [
        "      - that: step >= 2 and missing(out)",
        "                            ^",
    ]


def test_a_folded_expression_is_shown_by_itself() -> None:
    message = refused("expect:\n  - at: end\n    that: >-\n      step == 1 and\n      step ==\n")
    assert message.startswith("checks.yaml:3:11: ")
    assert "    step == 1 and step ==" in message


def test_a_script_is_bounded(tmp_path: Path) -> None:
    large = tmp_path / "large.yaml"
    large.write_bytes(b"#" * (MAX_SCRIPT_BYTES + 1))
    for path, said in (
        (large, "the limit of a script is"),
        (tmp_path / "none.yaml", "No such file"),
        (tmp_path, "Is a directory"),
    ):
        with pytest.raises(UsageError, match=said):
            read_file(path)
    with pytest.raises(UsageError, match="not UTF-8"):
        read(b"\xff\xfe", "checks.yaml")


@given(st.text(max_size=80))
def test_any_text_is_read_or_refused(text: str) -> None:
    """Never another error: a script that is wrong is the user's to mend."""
    for whole in (text, f"expect:\n  - at: end\n    that: {text}\n"):
        try:
            script(whole)
        except UsageError:
            pass


def test_the_schema_is_the_frozen_one(request: pytest.FixtureRequest) -> None:
    now = json.dumps(json_schema(), indent=2) + "\n"
    if request.config.getoption("--update-golden"):
        GOLDEN.write_text(now)
    assert now == GOLDEN.read_text(), "changed on purpose? `make golden`, and say it in CHANGELOG.md"
