"""A park ends by itself, however long a client asked for."""

from __future__ import annotations

import math

import pytest

from prismdbg.rank.recording_verbs import LONGEST_LEASE_S, _lease_s


@pytest.mark.parametrize(
    ("asked", "given"),
    [
        (5, 5),
        (120.0, 120),
        (1e9, LONGEST_LEASE_S),
        (math.inf, LONGEST_LEASE_S),
        (math.nan, LONGEST_LEASE_S),
        (-1, LONGEST_LEASE_S),
    ],
)
def test_a_lease_is_bounded(asked: float, given: float) -> None:
    assert _lease_s({"lease_s": asked}) == given


def test_who_asks_for_none_in_particular_gets_a_minute() -> None:
    assert _lease_s({}) == 60
