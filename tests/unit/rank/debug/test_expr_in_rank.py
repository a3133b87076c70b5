"""Expressions over a rank's own tensors: whatever is typed has a value that can be sent, or is refused with a caret."""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from test_inspection import look, stop_at

from prismdbg.errors import UsageError
from prismdbg.expr.functions import SIGNATURES
from prismdbg.expr.parser import parse
from prismdbg.rank.debug.breakpoints import Breakpoints
from prismdbg.rank.debug.inspection import evaluate_at

TENSORS: dict[str, Any] = {
    "whole": torch.arange(6).reshape(2, 3),
    "nothing": torch.empty(0),
    "none_of_three": torch.empty(3, 0, 2),
    "numbers": torch.tensor([1.0, float("nan"), float("inf"), -3.0]),
    "half": torch.ones(2, 2, dtype=torch.bfloat16),
    "flags": torch.tensor([True, False]),
    "imaginary": torch.tensor([1 + 2j, 3j]),
    "turned": torch.tensor([1 + 0j, -1 + 0j]),
    "alone": torch.tensor(3.5),
    "far": torch.empty(4, device="meta"),
    "sparse": torch.eye(3).to_sparse(),
    "listed": [torch.ones(2), torch.zeros(3, dtype=torch.int8)],
    "named": {"a": torch.ones(1), 3: "three"},
    "text": 'it\'s "so"',
    "count": 12,
    "large": 2**70,
    "none": None,
}
ATOMS = st.sampled_from([*TENSORS, "0", "-1", "2GiB", "1e6", "1e308", "'a\\'b'", '""', "True", "None", "missing"])
SIGNS = st.sampled_from(["+", "-", "*", "/", "//", "%", "**", "<", ">=", "==", "!=", "in", "is not", "and", "or"])
TREES = st.recursive(
    ATOMS,
    lambda inner: st.one_of(
        st.tuples(inner, SIGNS, inner).map(" ".join),
        inner.map("({})".format),
        inner.map("(not {})".format),
        inner.map("-({})".format),
        st.tuples(st.sampled_from(sorted(SIGNATURES)), inner).map("{0[0]}({0[1]})".format),
        st.tuples(inner, inner).map("min({0[0]}, {0[1]})".format),
        st.tuples(inner, inner).map("({0[0]})[{0[1]}]".format),
        st.tuples(inner, inner).map("({0[0]})[{0[1]}:, ::2]".format),
        st.tuples(inner, st.sampled_from(["grad", "shape", "T", "nosuch"])).map("({0[0]}).{0[1]}".format),
    ),
    max_leaves=12,
)  # fmt: skip


@given(TREES)
def test_any_of_them_has_a_value_or_is_refused_with_a_caret(text: str) -> None:
    try:
        value = evaluate_at(stop_at(None, **TENSORS), text, digest=True)
    except UsageError as refusal:
        assert "^" in str(refusal), refusal
    else:
        json.dumps(value, allow_nan=False)


@given(TREES)
def test_as_a_condition_it_holds_or_fails_once_and_the_rank_goes_on(text: str) -> None:
    try:
        parse(text)
    except UsageError:
        return
    failed: list[str] = []
    stops = Breakpoints(lambda _, error: failed.append(error))
    stops.replace([{"kind": "collective", "number": 1, "condition": text}])
    (one,) = stops.watched
    for _ in range(2):
        assert stops.holds(one, TENSORS.__getitem__, None) in (True, False)
    assert len(failed) <= 1


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("nan(whole)", False),
        ("nan(nothing) or inf(none_of_three)", False),
        ("finite(nothing)", True),
        ("count * 1e6 == 12e6", True),
        ("large > 2GiB and 2GiB == 2 * 1024 ** 3 and 2GB == 2e9", True),
        ("1.5KiB == 1536", True),
        ("sum(nothing)", 0),
        ("numel(none_of_three)", 0),
        ("max(abs(numbers[3:])) > 2.5", True),
        ("max(numbers) > 1", False),
        ("max(whole) == 5 and max(flags) == 1", True),
        ("text == 'it\\'s \"so\"'", True),
        ('text == "it\'s \\"so\\""', True),
        ("'so' in text", True),
        ("listed[1][0] == 0", True),
        ("named[3] == 'three'", True),
        ("none is None", True),
        ("first_nan(numbers)[0]", 1),
        ("dtype(half) == 'bfloat16'", True),
        ("shape(none_of_three)[0]", 3),
        ("sum(turned) == 0 and mean(turned) == 0", True),  # 1, -1
        ("std(turned)", 1.0),
        ("mean([turned, flags]) == 0.25 and norm(turned) ** 2 < 2.01", True),
    ],
)
def test_edges(text: str, expected: object) -> None:
    found = look(text, **TENSORS)
    given = found["value"] if "value" in found else found["values"]
    assert given == expected, found


@pytest.mark.parametrize(
    ("text", "column", "words"),
    [
        ("max(nothing) > 1", 0, "max needs at least one value"),
        ("nan(far)", 0, "cannot be read"),
        ("nan(text)", 0, "contains no numbers"),
        ("count > 2GB and numbers > 1", 16, ""),
        ("whole[9]", 5, "IndexError"),
        ("whole @ whole", 6, "is not valid here"),
        ("2XiB", 1, "unknown unit"),
        ("1e999", 0, "too large"),
        ("'open", 0, "not closed"),
        ("large ** large", 6, "too large"),
        ("named['b']", 5, "unknown key"),
    ],
)
def test_refused_where_it_is_wrong(text: str, column: int, words: str) -> None:
    if text.startswith("count"):
        assert look(text, **TENSORS)["value"] is False, "what is not decided is not looked at"
        return
    with pytest.raises(UsageError) as refused:
        look(text, **TENSORS)
    message, shown, pointer = str(refused.value).split("\n")
    assert words in message and shown.strip() == text and len(pointer) - 5 == column
