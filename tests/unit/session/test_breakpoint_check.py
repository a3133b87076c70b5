"""Stops held against what a capsule knows: what can never be hit is refused as it is typed, or written."""

from __future__ import annotations

from dataclasses import replace

import pytest

from prismdbg.debugger.debugger import Debugger
from prismdbg.errors import UsageError
from prismdbg.model.collective import Group
from prismdbg.script.reader import read
from prismdbg.script.scripted import check_names
from prismdbg.session import notices
from prismdbg.session.answers import Help
from prismdbg.session.breakpoint_check import check, doubt
from prismdbg.session.breakpoint_line import parse_breakpoint
from prismdbg.session.known import NOTHING, Known
from tests.unit.simulated_rank import SimulatedRank

KNOWN = Known(
    groups=(Group(name="0", ranks=(0, 1, 2, 3), desc="default_pg"), Group(name="7", ranks=(0, 2), desc="mesh_tp")),
    world_size=4,
    lines=frozenset([("/job/train.py", 57), ("/job/train.py", 61)]),
    files=frozenset(["/job/train.py", "/job/model.py"]),
    words=frozenset(["loss", "model", "size"]),
)


def test_a_line_whose_calls_a_replay_does_not_come_to_is_in_doubt() -> None:
    started = replace(KNOWN, earlier=frozenset([("/job/train.py", 57)]))
    assert doubt(parse_breakpoint("train.py:61"), started) == ""
    assert doubt(parse_breakpoint("train.py:57"), started) == (
        "the recorded collectives of train.py:57 are before the capsule's start moment; "
        "this file issues collectives at lines 61"
    )
    over = replace(started, earlier=KNOWN.lines)
    assert "this file issues no recorded collective after that moment" in doubt(parse_breakpoint("train.py:57"), over)


@pytest.mark.parametrize(
    "text",
    [
        "all_reduce on world", "on tp", "on mesh_tp", "on 7", "peer 3", "if bytes > 3 and loss > 1",
        "if local.byts > 3", "nan if model.head > 1", "allocation in module.blocks",
        "allocation mm train.py:3 if outer_op == 'x'",
        "change model.w", "exception if type == 'OSError'", "if allocated > 2GiB",
    ],
)  # fmt: skip
def test_what_there_is_may_be_stopped_at(text: str) -> None:
    check(parse_breakpoint(text), KNOWN)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('all_reduce if op == "allreduce"', "unknown collective 'allreduce'; did you mean all_reduce?"),
        ('nan if step > 3 and op != "xyz"', "unknown collective 'xyz'"),
        ('if op == "all_reduce" or op == "broadcast"', ""),
        ('allocation if op == "aten::mm"', ""),
    ],
)
def test_an_operator_that_no_collective_is_called_by_is_doubted(text: str, words: str) -> None:
    assert (words in doubt(parse_breakpoint(text), KNOWN)) if words else doubt(parse_breakpoint(text), KNOWN) == ""


def test_a_peer_that_nothing_is_sent_to_nor_received_from_is_doubted() -> None:
    assert doubt(parse_breakpoint("peer 1"), KNOWN) == "", "of an older capsule nobody says so"
    assert doubt(parse_breakpoint("peer 1"), replace(KNOWN, peers=frozenset([1, 2]))) == ""
    assert "with rank 3; recorded ranks: 1, 2" in doubt(
        parse_breakpoint("peer 3"), replace(KNOWN, peers=frozenset([1, 2]))
    )
    assert "with rank 3; recorded ranks: none" in doubt(parse_breakpoint("peer 3"), replace(KNOWN, peers=frozenset()))


@pytest.mark.parametrize(
    ("text", "words", "hint"),
    [
        (
            "if byts > 3",
            "unknown name 'byts'",
            "use bytes, if you mean that; for a variable of the program: local.NAME",
        ),
        ("nan if step > 3 and frobnicate", "'frobnicate'", "use one of"),
        ("if reason == 'x'", "'reason'", "only at: allocation"),
        ("change modle.w", "'modle'", "use module, if you mean that"),
        ("all_reduce on nosuch", "unknown group 'nosuch'", "use one of: world, tp"),
        ("on dp", "unknown group 'dp'", "use one of: world, tp"),
        ("peer 4", "unknown rank 4", "0 to 3"),
        ("allocation on tp", "takes no group", "if"),
        ("exception train.py:57", "takes no line", "if"),
        ("all_reduce peer 3", "takes no peer", "break peer RANK"),
    ],
)
def test_what_nobody_has_is_refused(text: str, words: str, hint: str) -> None:
    with pytest.raises(UsageError, match=words) as refused:
        check(parse_breakpoint(text), KNOWN)
    assert hint in refused.value.hint


def test_a_wrong_name_gets_a_caret() -> None:
    with pytest.raises(UsageError) as refused:
        check(parse_breakpoint("nan if step > 3 and byts > 1"), KNOWN)
    *_, shown, caret = str(refused.value).splitlines()
    assert caret.index("^") == shown.index("byts")


def test_nothing_is_said_against_what_is_not_known() -> None:
    for text in ("if byts > 3", "on nosuch", "peer 99", "nosuch.py:3"):
        check(parse_breakpoint(text), NOTHING)
        assert doubt(parse_breakpoint(text), NOTHING) == ""


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("train.py:57", ""),
        ("train.py:9999", "at lines 57, 61"),
        ("model.py:3", "issues no recorded collective"),
        ("nosuch.py:3", "its files: model.py, train.py"),
        ("allocation model.py:3", ""),
        ("allocation nosuch.py:3", "its files: model.py, train.py"),
    ],
)
def test_a_line_that_no_collective_came_by_is_doubted(text: str, words: str) -> None:
    found = doubt(parse_breakpoint(text), KNOWN)
    assert words in found and bool(found) is bool(words)


def test_the_debugger_refuses_warns_and_helps() -> None:
    told: list[notices.Notice] = []
    debugger = Debugger(SimulatedRank(), told.append, known=lambda: KNOWN)
    debugger.begin()
    for line in ("break on dp", "tbreak if byts > 1"):
        with pytest.raises(UsageError):
            debugger.do(line)
    assert debugger.session.breakpoints.all == ()
    debugger.do("break train.py:9999")
    assert [notice.text for notice in told if isinstance(notice, notices.Said)] == [
        "no recorded collective is issued at train.py:9999; this file issues collectives at lines 57, 61"
    ]
    for line in ("condition 1 byts > 3", "watch byts"):
        with pytest.raises(UsageError, match="'byts'"):
            debugger.do(line)
    answer = debugger.do("help break")
    assert isinstance(answer, Help)
    assert all(word in answer.more for word in ("bytes", "outer_op", "first_nan", "GiB", "local.NAME"))


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        ("stop_at:\n - {name: here, group: dp}", "unknown group 'dp'"),
        ("stop_at:\n - {name: here, when: byts > 3}", "'byts'"),
        ("stop_at:\n - {name: here, line: 'train.py:9999'}", "at lines 57, 61"),
        ("forbid:\n - {when: byts > 3}", "'byts'"),
        ("expect:\n - {that: byts > 3, at: 1.1}", "'byts'"),
        ("record:\n - {name: it, value: byts, at: 1.1}", "'byts'"),
    ],
)
def test_a_script_is_refused_before_anything_starts(entry: str, words: str) -> None:
    text = entry if "expect" in entry else f"{entry}\nexpect:\n - {{that: step == 1, at: 1.1}}\n"
    script = read(text.encode(), "checks.yaml")
    with pytest.raises(UsageError, match=words) as refused:
        check_names(script, KNOWN)
    assert str(refused.value).startswith("checks.yaml:2:") and str(refused.value).count("^") == 1
    check_names(script, NOTHING)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("if 'a' > 3", "text cannot be ordered against a number"),
        ("if op > 3", "text cannot be ordered against a number"),
        ("if step > 1 and bytes == 'big'", "a number never equals text"),
        ("if 1 < bytes + 4 < dtype", "a number cannot be ordered against text"),
        ("exception if type == 3", "text never equals a number"),
    ],
)
def test_text_and_numbers_are_not_compared(text: str, said: str) -> None:
    with pytest.raises(UsageError, match=said) as raised:
        check(parse_breakpoint(text), KNOWN)
    assert "^" in str(raised.value)


@pytest.mark.parametrize(
    "text", ["if local.op > 3", "if loss == 'x'", "if peer == None", "if max(abs(input[0])) > 1e3", "if -bytes < -4"]
)
def test_what_is_not_known_before_is_left_to_the_stop(text: str) -> None:
    check(parse_breakpoint(text), KNOWN)
