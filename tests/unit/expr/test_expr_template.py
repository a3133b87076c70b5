"""The text of a logpoint, with expressions in braces."""

from __future__ import annotations

import pytest

from prismdbg.errors import UsageError
from prismdbg.expr.template import MAX_LENGTH, parse_template
from prismdbg.model.breakpoints import MAX_LOGGED


def test_what_stands_in_braces_is_filled_in() -> None:
    template = parse_template("loss={loss}, {{not}} { nan(out[0]) }")
    assert [each.text for each in template.expressions] == ["loss", "nan(out[0])"]
    assert template.filled(["0.5", "True"]) == "loss=0.5, {not} True"
    assert parse_template("").filled([]) == "" and parse_template("here").filled([]) == "here"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{loss", "no other one"),
        ("loss}", "no other one"),
        ("a {b{c}}", "no other one"),
        ("{}", "an expression is missing"),
        ("{loss >}", "\\^"),
        ("{loss:.3f}", "unit"),
        ("x" * (MAX_LENGTH + 1), "at most"),
        ("{a}" * (MAX_LOGGED + 1), "at most"),
    ],
)
def test_what_cannot_be_filled_in_is_refused(text: str, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        parse_template(text)


def test_quotes_may_hold_a_brace_and_the_caret_is_in_the_whole_text() -> None:
    (found,) = parse_template("""x {state["}"]} y""").expressions
    assert found.text == 'state["}"]'
    with pytest.raises(UsageError) as refused:
        parse_template("loss is { loss:.3f}")
    assert refused.value.hint == "write the expression alone: values have no format"
    message, text, caret = str(refused.value).splitlines()
    assert text.strip() == "loss is { loss:.3f}" and caret.index("^") > text.index("loss:"), message


def test_a_value_is_not_read_again() -> None:
    assert parse_template("{a} {b}").filled(["{b}", "{a}"]) == "{b} {a}"
