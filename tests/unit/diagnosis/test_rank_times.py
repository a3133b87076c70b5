"""When a rank waited, for which other and in which collective; the longest interval of each part of the time."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from logs import MILLISECOND_NS, Job, put_on_device

from prismdbg.diagnosis.evidence import Evidence
from prismdbg.diagnosis.rank_times import RankTime, Wait
from prismdbg.diagnosis.time_parts import PARTS, longest_in, part_at, shares
from prismdbg.jobs.run_overview import overview_of
from prismdbg.jobs.storage.run_report import RankState
from prismdbg.model.collective import Frame
from prismdbg.model.moment import Moment

LATE_NS = 200 * MILLISECOND_NS
EVERY_PART = slice(0, PARTS)


def times(job: Job, *, states: dict[int, str] | None = None, ended_wall_ns: int = 0) -> list[RankTime]:
    evidence = Evidence(logs=job.logs, world_size=len(job.ranks), ended_wall_ns=ended_wall_ns)
    known = {
        rank: RankState(
            name=str(rank), state=(states or {}).get(rank, "ended"), moment="0.1", collectives=1, in_flight=0, steps=0,
            window="-", log_bytes=1, payload_bytes=0, lost="",
        )
        for rank in job.ranks
    }  # fmt: skip
    return [row.time for row in overview_of(Path("run"), evidence, known, {}).ranks]


def test_who_is_waited_for_in_which_collective_and_how_long() -> None:
    job = Job(3)
    job.call(late_ns={2: LATE_NS})
    job.call("broadcast_", late_ns={1: 3 * LATE_NS}, frames=(Frame("/job/model.py", 7, "forward"),))
    first, second, third = times(job)
    assert first.wait_in(EVERY_PART) == Wait(
        ranks=(1,), waited_ns=3 * LATE_NS, moment=Moment(0, 2), op="broadcast", at="model.py:7"
    )
    assert first.wait_in(slice(0, PARTS // 8)) == Wait(
        ranks=(2,), waited_ns=LATE_NS, moment=Moment(0, 1), op="all_reduce", at="train.py:42"
    )
    assert first.delay_in(EVERY_PART) is None
    assert second.delay_in(EVERY_PART) == Wait(
        ranks=(1,), waited_ns=3 * LATE_NS, moment=Moment(0, 2), op="broadcast", at="model.py:7"
    )
    assert third.delay_in(slice(PARTS // 2, PARTS)) is None, "it was late at the beginning"
    assert first.longest_part() == (3 * LATE_NS, np.flatnonzero(first.waits.late == 1)[0])


def test_others_wait_for_a_rank_while_it_is_not_there_yet() -> None:
    job = Job(3)
    job.call(late_ns={2: LATE_NS})
    job.call(late_ns={1: LATE_NS})
    waiter, second, third = times(job)
    half = PARTS // 2
    assert third.awaited[: half - 2].min() == pytest.approx(1) and third.awaited[half + 2 :].max() == 0
    assert second.awaited[: half - 2].max() == 0 and second.awaited[half + 2 : -1].min() == pytest.approx(1)
    assert second.waiting[: half - 2].min() == pytest.approx(1) and second.waiting[half + 2 :].max() == 0
    assert waiter.awaited.max() == 0 and waiter.seen.all()
    assert third.delays.longest_part() == (LATE_NS, 0)


def test_a_rank_that_never_comes_is_awaited_to_the_end() -> None:
    job = Job(3)
    job.call()
    job.raises(2)
    job.call(without={2}, done=False)
    begun_ns = job.logs[0].collectives[-1].time_created_ns
    first, _, third = times(job, ended_wall_ns=begun_ns + 1000 * MILLISECOND_NS)
    never = Wait(
        ranks=(2,), waited_ns=1000 * MILLISECOND_NS, moment=Moment(0, 2), op="all_reduce", at="train.py:42",
        never_came=True,
    )  # fmt: skip
    assert first.wait_in(slice(PARTS - 1, PARTS)) == never == third.delay_in(slice(PARTS // 2, PARTS // 2 + 1))
    assert first.waiting[5:].min() == pytest.approx(1) and third.awaited[5:].min() == pytest.approx(1)
    assert third.call_in(EVERY_PART) is None, "it has no call there in which it could be opened"
    assert first.longest_part() == third.longest_part() == (1000 * MILLISECOND_NS, first.stays[0].first)
    assert first.seen.all() and not third.seen[5:].any(), "its log has ended"


def test_a_rank_that_runs_is_seen_to_the_end() -> None:
    job = Job(2)
    job.call()
    job.call(only={0}, done=False)
    ended_ns = job.now_ns + 1000 * MILLISECOND_NS
    assert not times(job, ended_wall_ns=ended_ns)[1].seen[-1]
    assert times(job, ended_wall_ns=ended_ns, states={1: "running"})[1].seen.all()


def test_on_a_device_nobody_is_known_to_wait() -> None:
    job = Job(2)
    job.call(late_ns={1: LATE_NS})
    put_on_device(job)
    for time in times(job):
        assert time.waiting.max() == time.awaited.max() == 0 and time.wait_in(EVERY_PART) is None


@pytest.mark.parametrize("seed", range(20))
def test_the_longest_interval_of_each_part(seed: int) -> None:
    """Compared with looking at all of them."""
    random = np.random.default_rng(seed)
    edges = np.linspace(0, 24_000, PARTS + 1)
    begun = random.integers(-100, 24_100, 400)
    lasts = np.concatenate([random.integers(0, 300, 390), random.integers(1000, 30_000, 10)])
    found = longest_in(begun, begun + lasts, edges)
    first, last = part_at(begun, edges), part_at(begun + lasts, edges)
    for part in range(PARTS):
        here = np.flatnonzero((first <= part) & (part <= last))
        assert (found[part] == -1) if not len(here) else lasts[found[part]] == lasts[here].max()


def test_without_intervals_there_is_none() -> None:
    nothing = np.zeros(0, dtype=np.int64)
    assert (longest_in(nothing, nothing, np.linspace(0, 1, PARTS + 1)) == -1).all()


def test_in_a_job_of_no_time_nothing_is_filled() -> None:
    at = np.array([5, 5], dtype=np.int64)
    edges = np.full(PARTS + 1, 5.0)
    assert shares(at, at, edges).max() == 0 and (longest_in(at, at, edges) >= 0).sum() == 1


@pytest.mark.parametrize(("late_ms", "median_ms"), [((100, 200, 300), 200), ((100, 200, 300, 400), 250)])
def test_a_delay_is_what_the_others_waited_in_the_middle(late_ms: tuple[int, ...], median_ms: int) -> None:
    job = Job(len(late_ms) + 1)
    job.call(late_ns={rank: late * MILLISECOND_NS for rank, late in enumerate(late_ms, 1)})
    delay = times(job)[-1].delay_in(EVERY_PART)
    assert delay is not None and delay.waited_ns == median_ms * MILLISECOND_NS
