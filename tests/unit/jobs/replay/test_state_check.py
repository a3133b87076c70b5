"""What `verify --state` says of a replay that is identical, but not as long as was asked."""

from __future__ import annotations

from dataclasses import replace

import pytest
from capsules import STATE

from prismdbg.jobs.replay.compare import Verdict
from prismdbg.jobs.replay.state_check import checked
from prismdbg.jobs.replay.verdict import Outcome
from prismdbg.model.moment import Moment


@pytest.mark.parametrize(
    ("outcome", "wanted", "after"),
    [
        (Outcome.IDENTICAL, 1, Outcome.IDENTICAL),
        (Outcome.IDENTICAL, 2, Outcome.IDENTICAL),
        (Outcome.IDENTICAL, 3, Outcome.INCONCLUSIVE),
        (Outcome.DIVERGED, 3, Outcome.DIVERGED),  # a difference in fewer steps is one
        (Outcome.INCONCLUSIVE, 3, Outcome.INCONCLUSIVE),
    ],
)
def test_fewer_steps_than_were_asked_for_are_no_verdict(outcome: Outcome, wanted: int, after: Outcome) -> None:
    of_two_steps = replace(STATE, moment_a=Moment(8, 1), moment_b=Moment(10, 2))
    found = checked(Verdict(outcome=outcome, moment="10.2"), of_two_steps, wanted)
    assert (found.verdict.outcome, found.start, found.steps) == (after, Moment(8, 1), 2)
    if outcome is not after:
        assert found.verdict.why == "the recording has 2 steps after the newest state snapshot, fewer than 3"
