"""A slow step against the median of the steps before it."""

from __future__ import annotations

from prismdbg.capsule.log_format import StepSource
from prismdbg.capsule.log_reader import StepMark
from prismdbg.diagnosis.slow import FEWEST, SlowStep, StepWatch


def feed(watch: StepWatch, durations_ms: list[int]) -> list[SlowStep]:
    found: list[SlowStep | None] = []
    time_ns = 0
    for step, duration_ms in enumerate([0, *durations_ms], start=1):
        time_ns += duration_ms * 1_000_000
        found.append(watch.feed(StepMark(step, time_ns, StepSource.OPTIMIZER)))
    return [slow for slow in found if slow is not None]


def test_a_step_of_a_multiple_of_the_median() -> None:
    (slow,) = feed(StepWatch(3), [100] * 6 + [310, 100])

    assert (slow.step, slow.duration_ns, slow.median_ns) == (7, 310_000_000, 100_000_000)
    assert slow.text == "step 7 took 0.31 s, 3.1 times the median of those before"


def test_just_below_is_not_slow() -> None:
    assert feed(StepWatch(3), [100] * 6 + [299]) == []


def test_nothing_is_said_before_enough_steps_are_known() -> None:
    assert feed(StepWatch(3), [10] * (FEWEST - 1) + [1000]) == []


def test_one_slow_step_does_not_hide_the_next() -> None:
    assert [slow.step for slow in feed(StepWatch(3), [100] * 6 + [400, 100, 400])] == [7, 9]


def test_a_job_that_became_slow_is_told_until_its_median_follows() -> None:
    assert 1 <= len(feed(StepWatch(3), [100] * 6 + [400] * 20)) < 10
