"""Moments: what is printed is parsed again, and the order is the order of the run."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prismdbg.errors import UsageError
from prismdbg.model.moment import Moment

numbers = st.integers(0, 2**40)
moments = st.builds(Moment, numbers, numbers, numbers)


@given(moments)
def test_printed_and_parsed_again(moment: Moment) -> None:
    assert Moment.parse(str(moment)) == moment


@given(moments)
def test_blanks_around_it_do_not_matter(moment: Moment) -> None:
    assert Moment.parse(f"  {moment}\n") == moment


@given(moments, moments)
def test_ordered_by_step_then_collective_then_op(one: Moment, other: Moment) -> None:
    def key(moment: Moment) -> tuple[int, int, int]:
        return moment.step, moment.collective, moment.op

    assert (one < other) == (key(one) < key(other))
    assert (one == other) == (key(one) == key(other))
    assert sorted([one, other]) == sorted([other, one])


@given(st.lists(moments))
def test_ten_comes_after_nine(unordered: list[Moment]) -> None:
    """The order is that of numbers, not of texts."""
    assert [Moment.parse(str(m)) for m in sorted(unordered)] == sorted(unordered)
    assert Moment.parse("9.9") < Moment.parse("9.10") < Moment.parse("10.1")


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("12", Moment(12)),
        ("12.345", Moment(12, 345)),
        ("12.345.6", Moment(12, 345, 6)),
        ("12.345.0", Moment(12, 345)),
        ("007.010", Moment(7, 10)),
    ],
)
def test_shorter_forms(text: str, moment: Moment) -> None:
    assert Moment.parse(text) == moment


@pytest.mark.parametrize(
    "text",
    ["", ".", "1.", ".1", "1..2", "1.2.3.4", "-1", "+1", "1.2.x", "1e3", "1 2", "1,2", "0x1", "١٢", "1.²", "9" * 5000],
)
def test_what_is_no_moment(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        Moment.parse(text)
    assert "12.345.6" in caught.value.hint


@given(st.text())
def test_any_other_text_is_one_error_or_a_moment(text: str) -> None:
    try:
        moment = Moment.parse(text)
    except UsageError:
        return
    assert Moment.parse(str(moment)) == moment
