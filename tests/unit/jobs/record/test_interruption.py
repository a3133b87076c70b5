"""When a job was told to end, from what its supervisor saw and its ranks said."""

from __future__ import annotations

from dataclasses import replace
from signal import SIGHUP, SIGINT, SIGKILL, SIGSEGV, SIGTERM

import pytest

from prismdbg.jobs.record.deaths import Death
from prismdbg.jobs.record.interruption import (
    TOGETHER_NS,
    interrupted_at,
    interrupted_while_running,
    told_since,
    told_together,
)
from prismdbg.model.collective import State
from tests.unit.logs import MILLISECOND_NS, Job

NOW_NS = 10**18
TOGETHER_MS = TOGETHER_NS // MILLISECOND_NS

Deaths = list[tuple[int, int, int | None]]  # rank, milliseconds, signal


def supervisor(deaths: Deaths, told_ms: int | None = None) -> dict[str, object]:
    died = [{"rank": str(r), "wall_ns": NOW_NS + ms * MILLISECOND_NS, "signal": s} for r, ms, s in deaths]
    told = {} if told_ms is None else {"signal": 2, "wall_ns": NOW_NS + told_ms * MILLISECOND_NS}
    return {"how_they_died": died, "interrupted": told}


def job(exits: dict[int, tuple[int, int]] | None = None, raises: dict[int, int] | None = None) -> Job:
    """`exits`: by rank milliseconds and code."""
    made = Job(3)
    made.steps(2)
    for rank, (ms, code) in (exits or {}).items():
        made.now_ns = NOW_NS + ms * MILLISECOND_NS - 1000
        made.note(rank, "exit", code=code)
    for rank, ms in (raises or {}).items():
        made.now_ns = NOW_NS + ms * MILLISECOND_NS - 1000
        made.raises(rank)
    return made


def at(found: int | None) -> float | None:
    return None if found is None else (found - NOW_NS) / MILLISECOND_NS


@pytest.mark.parametrize(
    ("deaths", "told_ms", "exits", "expected"),
    [
        pytest.param([(0, 5, 15), (1, 7, 15), (2, 8, 15)], 3, {}, 3 - TOGETHER_MS, id="the supervisor was told"),
        pytest.param([], 30, {1: (20, 130)}, 20 - TOGETHER_MS, id="a terminal told the ranks first"),
        pytest.param([(2, 0, 15), (0, 40, 15)], 34, {}, -TOGETHER_MS, id="a scheduler told the ranks first"),
        pytest.param([(2, 0, 15)], 1500, {}, 1500 - TOGETHER_MS, id="one was told alone, long before"),
        pytest.param([(0, 0, SIGTERM), (1, 2, SIGTERM), (2, 9, SIGTERM)], None, {}, 0, id="the launcher was told"),
        pytest.param([(0, 0, SIGTERM), (1, 8, None), (2, 9, SIGTERM)], None, {}, None, id="one end is not known"),
        pytest.param([(0, 0, None), (1, 2, SIGTERM), (2, 9, SIGTERM)], None, {}, None, id="one was gone at once"),
        pytest.param([(0, 0, None), (1, 0, None)], None, {}, None, id="no end is known"),
        pytest.param([(0, 0, SIGTERM), (1, 900, None)], None, {2: (1, 130)}, None, id="one end is not known, later"),
        pytest.param([(0, 0, SIGTERM), (1, 0, SIGKILL)], None, {}, None, id="one was killed, seen with the others"),
        pytest.param([(0, 0, SIGTERM), (1, 2, SIGTERM)], None, {2: (8, 0)}, 0, id="one handled it"),
        pytest.param([(2, 9000, SIGKILL)], None, {0: (0, 130), 1: (4, 130)}, 0, id="one did not hear it"),
        pytest.param([(0, 0, SIGINT), (1, 900, SIGINT)], None, {}, 0, id="one took its time"),
        pytest.param([(1, 0, SIGKILL), (0, 60, SIGTERM), (2, 61, SIGTERM)], None, {}, None, id="one was killed"),
        pytest.param([(1, 0, SIGSEGV), (0, 1, SIGTERM), (2, 2, SIGTERM)], None, {}, None, id="one crashed"),
        pytest.param([(1, 0, SIGTERM), (0, 90, SIGTERM), (2, 91, SIGTERM)], None, {}, None, id="one alone was told"),
        pytest.param([(0, 60, SIGTERM), (2, 61, SIGTERM)], None, {1: (0, 130)}, None, id="one alone, by Ctrl-C"),
        pytest.param([(0, 60, SIGTERM), (2, 61, SIGTERM)], None, {1: (0, 1)}, None, id="one ended by itself"),
        pytest.param(
            [(0, 0, SIGTERM), (1, 0, 0)], None, {}, None, id="one failed without a word, seen with the others"
        ),
        pytest.param([], None, {0: (0, 0), 1: (1, 0), 2: (2, 0)}, None, id="all ended well"),
        pytest.param([], None, {}, None, id="nothing is known"),
    ],
)
def test_whether_the_job_was_told_to_end(
    deaths: Deaths, told_ms: int | None, exits: dict[int, tuple[int, int]], expected: int | None
) -> None:
    assert at(interrupted_at(supervisor(deaths, told_ms), job(exits).logs, 0)) == expected


@pytest.mark.parametrize(
    ("began_ms", "last_ms", "is_told"),
    [(-9000, -1000, True), (-9000, 30_000, True), (-9000, 61_000, False), (9, 20, False)],
)
def test_a_job_with_ranks_that_live_was_told_unless_they_began_later_or_go_on(
    began_ms: int, last_ms: int, is_told: bool
) -> None:
    made = Job(1)
    for ms in (began_ms, last_ms):
        made.now_ns = NOW_NS + ms * MILLISECOND_NS - 1000
        made.steps(1)

    found = interrupted_while_running(supervisor([], told_ms=0), made.logs, 0)

    assert at(found) == (-TOGETHER_MS if is_told else None)
    assert interrupted_while_running(supervisor([]), made.logs, 0) is None


@pytest.mark.parametrize(("reported", "told_ms"), [(0, 600 - TOGETHER_MS), (1, -TOGETHER_MS)])
def test_a_death_that_was_reported_before_the_supervisor_was_told_is_no_part_of_it(reported: int, told_ms: int) -> None:
    """The attempt in which it was reported: another one says nothing of this."""
    told = supervisor([(1, 0, SIGTERM)], told_ms=600)
    told["incidents"] = [{"kind": "lost", "ranks": [1], "attempt": reported, "text": "rank 1 died"}]
    assert at(interrupted_at(told, job(raises={0: 10}).logs, 0)) == told_ms


def test_a_rank_that_raised_first_is_the_cause() -> None:
    deaths: Deaths = [(0, 60, SIGTERM), (2, 61, SIGTERM)]
    assert interrupted_at(supervisor(deaths), job(raises={1: 0}).logs, 0) is None


@pytest.mark.parametrize("raised", [{0: 2}, {0: 2, 2: 4}, {0: 20}])
@pytest.mark.parametrize("number", [SIGTERM, SIGHUP])
def test_a_rank_that_lost_its_peer_was_not_told_with_it(number: int, raised: dict[int, int]) -> None:
    """Rank 1 was ended alone; the others raise at once, and the launcher ends them when it looks."""
    deaths: Deaths = [(1, 0, number), (0, 113, SIGTERM), (2, 114, SIGTERM)]
    assert interrupted_at(supervisor(deaths), job(raises=raised).logs, 0) is None


@pytest.mark.parametrize("deaths", [[], [(0, 6, SIGTERM)]])
def test_a_rank_whose_call_failed_and_that_handled_it_was_not_told_either(deaths: Deaths) -> None:
    made = job({0: (5, 1), 2: (900, 1)})
    last = made.logs[0].collectives[-1]
    made.logs[0].collectives[-1] = replace(last, state=State.FAILED)
    assert interrupted_at(supervisor([(1, 0, SIGTERM), *deaths]), made.logs, 0) is None


@pytest.mark.parametrize(
    "deaths", [[(1, 100, SIGINT), (0, 900, SIGTERM), (2, 901, SIGTERM)], [(0, 900, 0), (1, 901, SIGINT), (2, 950, 0)]]
)
def test_one_that_was_interrupted_alone_is_no_end_of_the_job(deaths: Deaths) -> None:
    """It says so; the others lose their connections to it, and the launcher ends them, unless they were faster."""
    made = job({1: (0, 130)}, raises={0: 800, 2: 810})
    assert interrupted_at(supervisor(deaths), made.logs, 0) is None


def test_of_several_that_were_interrupted_one_may_lose_a_peer_first() -> None:
    made = job({1: (0, 130), 2: (3, 130)}, raises={0: 2})
    assert at(interrupted_at(supervisor([(0, 40, 0), (1, 40, SIGINT), (2, 44, SIGINT)]), made.logs, 0)) == 0


def test_an_exception_that_the_program_outlived_is_not_the_first_end() -> None:
    made = job(raises={1: 0})
    made.now_ns += 1000 * MILLISECOND_NS
    made.steps(2)
    deaths: Deaths = [(0, 5000, SIGTERM), (1, 5001, SIGTERM), (2, 5002, SIGTERM)]
    assert at(interrupted_at(supervisor(deaths), made.logs, 0)) == 5000


def test_the_supervisor_and_why_find_the_same_moment() -> None:
    deaths: Deaths = [(2, 0, SIGTERM), (0, 40, SIGTERM), (1, 41, SIGKILL)]
    seen_ns = [NOW_NS, NOW_NS + 40 * MILLISECOND_NS]
    assert told_since(NOW_NS + 34 * MILLISECOND_NS, seen_ns) == interrupted_at(supervisor(deaths, 34), job().logs, 0)


@pytest.mark.parametrize(
    "damaged",
    [
        {"how_they_died": [{"rank": "x"}, {}, 3, None]},
        {"how_they_died": [{"rank": "²", "wall_ns": 1}, {"rank": "0.x", "wall_ns": 1}, {"rank": 0, "wall_ns": 1}]},
        {"how_they_died": 3},
        {"interrupted": 3},
        {},
    ],
)
def test_what_the_supervisor_wrote_may_be_damaged(damaged: dict[str, object]) -> None:
    assert interrupted_at(damaged, job().logs, 0) is None


def test_who_was_told_together_with_others_is_no_incident() -> None:
    def deaths(*found: tuple[int, int, int | None]) -> list[Death]:
        return [Death(name=str(r), wall_ns=NOW_NS + ms * MILLISECOND_NS, signal=s) for r, ms, s in found]

    later = NOW_NS + 1000 * MILLISECOND_NS
    assert told_together(deaths((0, 0, SIGTERM), (1, 5, None), (2, 9, SIGTERM)), later) == {"0", "2"}
    assert told_together(deaths((0, 0, SIGKILL), (1, 5, SIGTERM), (2, 9, SIGTERM)), later) == {"1", "2"}
    assert told_together(deaths((0, 0, SIGTERM), (1, 80, SIGTERM), (2, 81, SIGTERM)), later) == {"1", "2"}
    assert told_together(deaths((0, 0, SIGTERM)), later) == frozenset()
    assert told_together(deaths((0, 0, SIGTERM)), NOW_NS + MILLISECOND_NS) == {"0"}, "the others may follow"
    assert told_together(deaths((0, 0, SIGTERM)), later, {"1": NOW_NS + 5 * MILLISECOND_NS}) == {"0"}
    assert told_together(deaths((0, 0, SIGTERM)), later, {"1": NOW_NS + 80 * MILLISECOND_NS}) == frozenset()
    assert told_together(deaths((0, 0, SIGTERM)), later, {"0": NOW_NS}) == frozenset(), "itself"
    pair = deaths((0, 0, SIGTERM), (1, 9, SIGTERM))
    assert told_together(pair, later, {}, {"0": False, "1": True}.__getitem__) == {"1"}, "rank 1 lost rank 0"
