"""What the expression language accepts, what it refuses, and where its caret points."""

from __future__ import annotations

import ast

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from prismdbg.errors import UsageError
from prismdbg.expr.lexer import MAX_TEXT
from prismdbg.expr.parser import parse


def caret(text: str) -> tuple[str, int]:
    """The message of the refusal and the column its caret points at."""
    with pytest.raises(UsageError) as caught:
        parse(text)
    message, shown, pointer = str(caught.value).split("\n")
    assert shown.strip() and pointer.strip() == "^"
    return message, len(pointer) - len("    ") - 1


@pytest.mark.parametrize(
    "text",
    [
        "step > 12",
        "not nan(out) and bytes >= 2GiB",
        "model.layers[3].weight",
        "x[0, 1:2, ::2, -1]",
        "x[1:]",
        "op in ('all_reduce', 'broadcast')",
        "op not in ['barrier',]",
        "grad is not None",
        "()",
        "(1,)",
        "-x ** -2",
        "1 < a <= b != 3",
        "max(1, 2, 3)",
        "_hidden_local",
    ],
)
def test_accepted(text: str) -> None:
    assert parse(text).text == text


def test_names_are_those_it_starts_from() -> None:
    assert parse("nan(model.weight[i]) or max(step, 3) > len(x)").names == {"model", "i", "step", "x"}


@pytest.mark.parametrize(
    ("text", "column", "word"),
    [
        ("", 0, "missing"),
        ("nan(out))", 8, "not expected"),
        ("nan(out", 7, "too early"),
        ("1 +", 3, "too early"),
        ("a b", 2, "not expected"),
        ("a = 1", 2, "is not valid here"),
        ("x.__class__", 2, "private"),
        ("x._data", 2, "private"),
        ("__builtins__", 0, "private"),
        ("().__class__.__bases__[0].__subclasses__()", 3, "private"),
        ("lambda: 0", 0, "not part of"),
        ("[i for i in x]", 3, "not expected"),
        ("a if b else c", 2, "not expected"),
        ("__import__('os')", 0, "private"),
        ("eval('1')", 0, "unknown function"),
        ("open('f')", 0, "unknown function"),
        ("x.sum()", 5, "cannot be called"),
        ("max(1)(2)", 6, "cannot be called"),
        ("nan()", 0, "takes 1 argument"),
        ("nan(a, b)", 0, "takes 1 argument"),
        ("max()", 0, "takes at least 1"),
        ("f(*x)", 0, "unknown function"),
        ("nan(*x)", 4, "not expected"),
        ("nan(x=1)", 5, "is not valid here"),
        ("(y := 5)", 4, "is not valid here"),
        ("{1: 2}", 0, "is not valid here"),
        ("f'{x}'", 1, "not expected"),
        ("'open", 0, "not closed"),
        (r"'\x41'", 0, "escape"),
        ("12foo", 2, "unknown unit"),
        ("1e999", 0, "too large"),
        ("x[]", 2, "not expected"),
        ("x;y", 1, "is not valid here"),
        ("x.1", 1, "not expected"),
        ("a\x00b", 1, "is not valid here"),
        ("await x", 0, "not part of"),
        ("@x", 0, "is not valid here"),
    ],
)
def test_refused_with_a_caret(text: str, column: int, word: str) -> None:
    if text:
        message, found = caret(text)
        assert word in message
        assert found == column
    else:
        with pytest.raises(UsageError, match=word):
            parse(text)


def test_a_method_gets_the_function_as_hint() -> None:
    with pytest.raises(UsageError) as caught:
        parse("x.sum()")
    assert "sum(" in caught.value.hint


@pytest.mark.parametrize(
    "text",
    [
        "(" * 100 + "1" + ")" * 100,
        "[" * 300,
        "not " * 100 + "x",
        "-" * 200 + "1",
        "2" + "**2" * 100,
        "x" + ".a" * 60,
        "x" + "[0]" * 60,
        "+".join("1" * 100),
        "(" + ",".join("1" * 300) + ")",
        "max(" * 60 + "1" + ")" * 60,
        "x" * (MAX_TEXT + 1),
        "9" * 500,
    ],
)
def test_refused_for_size(text: str) -> None:
    with pytest.raises(UsageError):
        parse(text)


def test_the_caret_of_a_long_text_stays_near() -> None:
    with pytest.raises(UsageError) as caught:
        parse("a + " * 30 + "$")
    _, shown, pointer = str(caught.value).split("\n")
    assert len(shown) < 70
    assert shown[len(pointer) - 1] == "$"


PIECES = st.sampled_from(
    [
        *"()[].,:+-*/%<>='\"\\ \n\t_$@{}#;0129",
        *("**", "//", "==", "__class__", "lambda", "for", "in", "not", "and", "or", "is", "None", "x", "nan", "max"),
        *("2GiB", "1e6", "0x", "1.", "é", "²", "\u2028", "\U0001f600"),
    ]
)


@given(st.lists(PIECES, max_size=60).map("".join) | st.text(max_size=80))
@example("²")
@example("1" + "_" * 30)
@example("0x")
@example("0x_")
@example("1__0")
@example("١٢")
def test_garbage_is_read_or_refused_and_nothing_else(text: str) -> None:
    try:
        parse(text)
    except UsageError as refusal:
        assert str(refusal)


@given(st.lists(PIECES, max_size=12).map(" ".join))
@example("²")
@example("+ \u2028 0")
def test_what_is_accepted_is_python_but_for_sizes(text: str) -> None:
    """The grammar is a part of Python's, so that nobody has to learn it."""
    try:
        parse(text)
    except UsageError:
        return
    try:
        ast.parse(text.replace("GiB", "").strip().replace("\n", " "), mode="eval")
    except SyntaxError:
        pytest.fail(f"{text!r} is accepted and is not Python")
