"""Typed lines: verbs, their short forms, what they take."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prismdbg.errors import UsageError
from prismdbg.model.moment import Moment
from prismdbg.session.line import VERBS, Line, Verb, parse_line


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("next", Line(verb=Verb.NEXT)),
        ("n", Line(verb=Verb.NEXT)),
        ("  next   10 ", Line(verb=Verb.NEXT, number=10)),
        ("ne 2", Line(verb=Verb.NEXT, number=2)),
        ("c", Line(verb=Verb.CONTINUE)),
        ("u 12.3.4", Line(verb=Verb.UNTIL, moment=Moment(12, 3, 4))),
        ("until 12", Line(verb=Verb.UNTIL, moment=Moment(12))),
        ("p out[0] + 1", Line(verb=Verb.PRINT, text="out[0] + 1")),
        ("l 40", Line(verb=Verb.LIST, number=40)),
        ("loc", Line(verb=Verb.LOCALS)),
        ("up 2", Line(verb=Verb.UP, number=2)),
        ("d", Line(verb=Verb.DOWN)),
        ("help next", Line(verb=Verb.HELP, text="next")),
        ("quit", Line(verb=Verb.QUIT)),
        ("bt", Line(verb=Verb.WHERE)),
        ("stack", Line(verb=Verb.WHERE)),
    ],
)
def test_lines(text: str, line: Line) -> None:
    assert parse_line(text) == line


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("", "unknown command ''"),
        ("dance", "unknown command 'dance'"),
        ("loc 3", "takes no arguments"),
        ("next two", "number from 1"),
        ("next 0", "number from 1"),
        ("next -3", "number from 1"),
        ("next 99999999999", "number from 1"),
        ("next ²", "number from 1"),
        ("until", "needs MOMENT"),
        ("until tomorrow", "not a moment"),
        ("print", "needs EXPRESSION"),
        ("quit now", "takes no arguments"),
        ("print " + "x" * 5000, "at most"),
    ],
)
def test_refusals(text: str, word: str) -> None:
    with pytest.raises(UsageError, match=word):
        parse_line(text)


def test_short_forms_are_one_each() -> None:
    shorts = [usage.short for usage in VERBS.values() if usage.short]
    assert len(shorts) == len(set(shorts))
    assert set(VERBS) == set(Verb)


@given(st.text(max_size=30) | st.sampled_from(list(Verb)).flatmap(lambda v: st.text(max_size=10).map(f"{v} ".__add__)))
def test_anything_is_a_line_or_is_refused(text: str) -> None:
    try:
        assert parse_line(text).verb in VERBS
    except UsageError as refusal:
        assert str(refusal)


@pytest.mark.parametrize(("typed", "near"), [("contnue", "continue"), ("chekpoint", "checkpoint"), ("Orign", "origin")])
def test_a_mistyped_verb_gets_a_suggestion(typed: str, near: str) -> None:
    with pytest.raises(UsageError, match=f"unknown command '{typed}'; did you mean '{near}'"):
        parse_line(typed)
