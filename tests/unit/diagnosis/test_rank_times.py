"""When a rank waited, for which other and in which collective; the longest interval of each part of the time."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from prismdbg.diagnosis.evidence import Evidence
from prismdbg.diagnosis.lateness.rank_times import RankTime, Wait
from prismdbg.diagnosis.lateness.time_parts import PARTS, longest_in, part_at, shares
from prismdbg.diagnosis.stops import Stopped
from prismdbg.diagnosis.verdict import Certainty
from prismdbg.jobs.run_overview import RankRow, RunOverview, overview_of
from prismdbg.jobs.storage.run_report import RankState
from prismdbg.log.rank_log import rank_log
from prismdbg.log.values import Values, of_values
from prismdbg.model.collective import Frame
from prismdbg.model.moment import Moment
from tests.unit.logs import MILLISECOND_NS, Job, put_on_device

LATE_NS = 200 * MILLISECOND_NS
EVERY_PART = slice(0, PARTS)


def times(job: Job, *, states: dict[int, str] | None = None, ended_wall_ns: int = 0) -> list[RankTime]:
    evidence = Evidence(logs=job.logs, world_size=len(job.ranks), ended_wall_ns=ended_wall_ns)
    return [row.time for row in overview_of(Path("run"), evidence, states_of(job, states or {}), {}).ranks]


def states_of(job: Job, states: dict[int, str]) -> dict[int, RankState]:
    return {
        rank: RankState(
            name=str(rank), state=states.get(rank, "ended"), moment="0.1", collectives=1, in_flight=0, steps=0,
            window="-", log_bytes=1, payload_bytes=0, lost="",
        )
        for rank in job.ranks
    }  # fmt: skip


def test_who_is_waited_for_in_which_collective_and_how_long() -> None:
    job = Job(3)
    job.call(late_ns={2: LATE_NS})
    job.call("broadcast_", root=1, late_ns={1: 3 * LATE_NS}, frames=(Frame("/job/model.py", 7, "forward"),))
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


@pytest.mark.parametrize(("op", "root"), [("reduce_", 0), ("gather_", 0), ("broadcast_", 0), ("scatter_", 2)])
def test_nobody_waits_for_whom_only_the_root_or_nobody_needs(op: str, root: int) -> None:
    job = Job(3)
    job.call()
    job.call(op, root=root, late_ns={1: LATE_NS})
    job.call()
    assert all(of_rank.delay_in(EVERY_PART) is None for of_rank in times(job))


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


def of_newest(job: Job, rows: int) -> RunOverview:
    """As of logs of which only so many of the newest collectives are read."""
    logs = {}
    for rank, log in job.logs.items():
        columns = of_values(log).newest(rows)
        assert isinstance(columns, Values)
        columns.rows = [log.collectives[at] for at in columns.record_id.tolist()]
        logs[rank] = rank_log(columns)
    return overview_of(Path("run"), Evidence(logs=logs, world_size=len(job.ranks)), states_of(job, {}), {})


def long_job(**first: Any) -> Job:
    """Rank 1 is late in each of 200 steps of a second. first: of a call in the beginning."""
    job = Job(2)
    job.call(late_ns={1: 2 * LATE_NS}, **first)
    for _ in range(200):
        job.call(late_ns={1: LATE_NS})
        job.now_ns += 1000 * MILLISECOND_NS - LATE_NS
    return job


@pytest.mark.parametrize("first", [{"receives_nan": (0, 1)}, {"done": False}])
def test_single_calls_of_long_before_do_not_stretch_the_time(first: dict[str, Any]) -> None:
    shown = of_newest(long_job(**first), 20)
    assert shown.lasted_ns < 21_000 * MILLISECOND_NS and shown.begins_later
    first_rank, late_rank = (row.time for row in shown.ranks)
    assert first_rank.seen.all() and not late_rank.seen[0] and late_rank.seen[3:].all()
    assert (shown.ranks[0].time.waiting > 0).sum() > PARTS / 6, "all over the time"
    waits = shown.ranks[0].time.waits.waited_ns
    assert set(waits[waits > 0].tolist()) == {LATE_NS}, "the one of long before is not among them"


def test_a_whole_log_begins_with_the_job() -> None:
    shown = of_newest(long_job(), 1000)
    assert not shown.begins_later and shown.lasted_ns > 190_000 * MILLISECOND_NS


def overlapped(waited_ns: int | None) -> list[RankRow]:
    """Rank 1 is late in a collective for which rank 0 began to wait `waited_ns` before its end."""
    job = Job(2)
    job.call(late_ns={1: LATE_NS})
    for log in job.logs.values():
        (call,) = log.collectives
        ended_ns = call.time_completed_ns or 0
        since_ns = None if waited_ns is None else max(ended_ns - waited_ns, call.time_created_ns)
        log.collectives = [replace(call, is_async=True, time_waited_ns=since_ns)]
    return list(overview_of(Path("run"), Evidence(logs=job.logs, world_size=2), states_of(job, {}), {}).ranks)


def test_an_asynchronous_call_is_a_wait_from_when_it_is_waited_for() -> None:
    transfer_ns = MILLISECOND_NS // 2
    first, second = overlapped(LATE_NS // 4 + transfer_ns)
    wait, delay = first.time.wait_in(EVERY_PART), second.time.delay_in(EVERY_PART)
    assert wait is not None and delay is not None and wait.waited_ns == delay.waited_ns == LATE_NS // 4
    assert first.waited_ns == second.awaited_ns == LATE_NS // 4
    assert first.time.waiting[: PARTS // 2].max() == 0 and first.time.waiting[-20:-2].min() == pytest.approx(1)
    assert (first.waited_for[0].when[: PARTS // 2].max(), first.known_waits, first.unknown_waits) == (0, 1, 0)


@pytest.mark.parametrize(("waited_ns", "unknown"), [(100, 0), (None, 1)])
def test_what_computation_hides_is_no_wait(waited_ns: int | None, unknown: int) -> None:
    """Nor one where it is not known when its rank began to wait."""
    for row in overlapped(waited_ns):
        assert row.time.wait_in(EVERY_PART) is row.time.delay_in(EVERY_PART) is None
        assert row.waited_ns == row.awaited_ns == row.time.waiting.max() == row.time.awaited.max() == 0
        assert (row.known_waits, row.unknown_waits, row.waited_for) == (1 - unknown, unknown, ())


def hung(ended_after_ns: int | None = None) -> tuple[RunOverview, Job]:
    """Rank 1 never comes."""
    job = Job(2)
    job.call()
    job.call(only={0}, done=False)
    began_ns = job.logs[0].collectives[-1].time_created_ns
    ended_ns = 0 if ended_after_ns is None else began_ns + ended_after_ns
    evidence = Evidence(logs=job.logs, world_size=2, ended_wall_ns=ended_ns)
    return overview_of(Path("run"), evidence, states_of(job, {}), {}), job


def test_a_wait_of_which_nobody_knows_the_end_has_no_length() -> None:
    first, second = hung()[0].ranks
    wait = first.time.wait_in(EVERY_PART)
    assert wait is not None and wait.waited_ns is None and wait.never_came
    assert wait == second.time.delay_in(slice(PARTS - 1, PARTS)) == first.time.call_in(EVERY_PART)
    assert first.time.waiting[-1] == first.inside[-1] == second.time.awaited[-1] == pytest.approx(1)
    assert first.time.longest_part()[1] >= PARTS - 2


def test_a_wait_that_may_only_be_the_end_of_the_job_is_none() -> None:
    shown, _ = hung(ended_after_ns=MILLISECOND_NS)
    (verdict,) = shown.diagnosis.verdicts
    assert verdict.certainty is Certainty.HINT
    for row in shown.ranks:
        assert row.time.stays == row.time.absences == () and row.time.waiting.max() == row.time.awaited.max() == 0


def test_who_waits_first_is_told_by_the_time_of_day() -> None:
    """Clocks of two nodes count from the start of each."""
    job = Job(3)
    job.call()
    job.raises(2)
    job.call(only={0}, done=False)
    job.call(only={1}, done=False)
    ahead_ns = 900 * MILLISECOND_NS
    later = job.logs[1]
    later.collectives = [
        replace(
            call,
            time_created_ns=call.time_created_ns - ahead_ns,
            time_completed_ns=None if call.time_completed_ns is None else call.time_completed_ns - ahead_ns,
        )
        for call in later.collectives
    ]
    later.wall_offset_ns = ahead_ns
    evidence = Evidence(logs=job.logs, world_size=3, ended_wall_ns=job.now_ns + 1000 * MILLISECOND_NS)
    shown = overview_of(Path("run"), evidence, states_of(job, {}), {})
    (stop,) = [verdict for verdict in shown.diagnosis.verdicts if isinstance(verdict, Stopped)]
    first_ns = job.logs[0].collectives[-1].time_created_ns
    assert stop.stall.first.rank == 0 and stop.waited_ns == evidence.ended_wall_ns - first_ns
    delay = shown.ranks[2].time.delay_in(EVERY_PART)
    assert delay is not None and delay.waited_ns == stop.waited_ns
