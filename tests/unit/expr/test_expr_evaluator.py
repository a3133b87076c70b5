"""Values of expressions: like Python's where both are defined, bounded, and never anything but `UsageError`."""

from __future__ import annotations

from collections import defaultdict
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prismdbg.errors import UsageError
from prismdbg.expr.evaluator import Environment, evaluate
from prismdbg.expr.parser import parse

FUNCTIONS: dict[str, Any] = {"max": max, "min": min, "len": len, "abs": abs, "any": any, "all": all, "sum": sum}


def value(text: str, **names: Any) -> Any:
    return evaluate(parse(text), Environment(lookup=names.__getitem__, functions=FUNCTIONS))


MODEL = SimpleNamespace(layers=[SimpleNamespace(weight=[1.0, 2.0])], config={"width": 64}, _secret=1)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2GiB", 2 << 30),
        ("1.5KiB", 1536),
        ("3KB", 3000),
        ("1e6", 1e6),
        ("0xff", 255),
        ("1_000", 1000),
        ("model.layers[0].weight[-1]", 2.0),
        ("model.config['width'] == 64", True),
        ("1 < 2 < 3", True),
        ("1 < 3 < 2", False),
        ("3 > 2 and not 1 > 2 or missing", True),
        ("0 or ''", ""),
        ("1 and 'x'", "x"),
        ("-2 ** 2", -4),
        ("2 ** 3 ** 2", 512),
        ("2 ** -1", 0.5),
        ("7 // 2 + 7 % 2 * 10 - 1 / 2", 12.5),
        ("'a' in ('a', 'b')", True),
        ("'a' not in 'bc'", True),
        ("None is None", True),
        ("1 is not None", True),
        ("(1, 2, 3)[1:]", (2, 3)),
        ("max(1, 2) + len('abc')", 5),
        (r"'it\'s'", "it's"),
        ("not not 1", True),
        ("()", ()),
        ("(1)", 1),
        ("(1,)", (1,)),
    ],
)
def test_values(text: str, expected: object) -> None:
    assert value(text, model=MODEL) == expected


def test_slices_reach_a_known_kind_as_they_are() -> None:
    class Keys:
        def __getitem__(self, key: object) -> object:
            return key

    def sliced(text: str) -> object:
        known = Environment(lookup={"x": Keys()}.__getitem__, functions={}, kinds=frozenset((Keys,)))
        return evaluate(parse(text), known)

    assert sliced("x[1:2, ::3, 4, :]") == (slice(1, 2), slice(None, None, 3), 4, slice(None))
    assert sliced("x[::]") == slice(None)


@pytest.mark.parametrize(
    ("text", "column", "word"),
    [
        ("1 + missing", 4, "unknown name 'missing'"),
        ("model.nothing", 5, "has no attribute"),
        ("1 + 1 / 0", 6, "ZeroDivisionError"),
        ("model.layers[7]", 12, "IndexError"),
        ("d['absent']", 1, "unknown key"),
        ("1 < 'a'", 4, "TypeError"),
        ("'a' * 1000000000", 4, "numbers and tensors"),
        ("'%999999999d' % 1", 14, "numbers and tensors"),
        ("[0] * 1000000000", 4, "numbers and tensors"),
        ("9**9**9", 1, "too large"),
        ("1 ** 99999999", 2, "too large"),
        ("1 in model", 5, "cannot be indexed"),
        ("1 in numbers", 5, "cannot be indexed"),
        ("len(3)", 0, "TypeError"),
        ("2.0 ** 99999", 4, "OverflowError"),
    ],
)
def test_refused_with_a_caret(text: str, column: int, word: str) -> None:
    with pytest.raises(UsageError) as caught:
        value(text, model=MODEL, d={}, numbers=iter(range(9)))
    message, _, pointer = str(caught.value).split("\n")
    assert word in message
    assert len(pointer) - len("    ") - 1 == column


def test_how_a_mapping_is_looked_into_is_told() -> None:
    """What an optimizer keeps is shown numbered by parameter and named by field."""
    weight = SimpleNamespace()
    for text, hint in (("group.lr", 'write ["lr"]'), ("state[0]", "name a key of type object"), ("group['rl']", "")):
        with pytest.raises(UsageError, match="key") as refused:
            value(text, group={"lr": 0.1}, state={object(): weight})
        assert hint in refused.value.hint and (hint or not refused.value.hint)


def test_looking_does_not_fill_a_defaultdict_nor_use_up_an_iterator() -> None:
    table: defaultdict[str, int] = defaultdict(int)
    numbers = iter(range(3))
    for text in ("table['x']", "1 in numbers"):
        with pytest.raises(UsageError):
            value(text, table=table, numbers=numbers)
    assert not table
    assert list(numbers) == [0, 1, 2]


def test_numbers_of_the_program_are_bounded_too() -> None:
    with pytest.raises(UsageError, match="too large"):
        value("x * x", x=1 << 100_000)


def test_what_the_program_would_compute_is_refused() -> None:
    class Angry:
        @property
        def mood(self) -> None:
            raise RuntimeError("asked")

    with pytest.raises(UsageError, match=r"'mood' .* is computed by the program"):
        value("angry.mood", angry=Angry())


def test_operands_are_adapted_and_admitted() -> None:
    seen: list[tuple[Any, Any]] = []
    environment = Environment(
        lookup={"x": "3"}.__getitem__,
        functions=FUNCTIONS,
        operand=lambda v: int(v) if isinstance(v, str) else v,
        admit=lambda a, b: seen.append((a, b)),
    )
    assert evaluate(parse("abs(x) + x"), environment) == 6
    assert seen == [(3, 3)]


NAMES: dict[str, Any] = {"x": 3, "y": [1, 2, 3], "s": "text", "m": MODEL, "d": {"k": 1}, "n": None, "f": 0.5}
ATOMS = st.sampled_from([*NAMES, "0", "1", "7", "1e9", "'k'", "None", "True", "m.layers", "missing", "4GiB"])
TREES = st.recursive(
    ATOMS,
    lambda inner: st.one_of(
        st.tuples(
            inner, st.sampled_from(["+", "-", "*", "/", "//", "%", "**", "<", "==", "in", "is", "and"]), inner
        ).map(" ".join),
        inner.map("({})".format),
        inner.map("not {}".format),
        inner.map("-{}".format),
        inner.map("len({})".format),
        st.tuples(inner, inner).map("max({0[0]}, {0[1]})".format),
        st.tuples(inner, inner).map("({0[0]})[{0[1]}]".format),
        inner.map("({}).real".format),
    ),
    max_leaves=25,
)


@given(TREES)
def test_any_expression_has_a_value_or_is_refused(text: str) -> None:
    try:
        value(text, **NAMES)
    except UsageError as refusal:
        assert str(refusal)
