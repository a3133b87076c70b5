"""Stacks of a job's ranks: as they are kept, bounded, and read back; hostile ones are refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from prismdbg.capsule.checked_json import Fields, dumps
from prismdbg.capsule.stacks import (
    FROM_AGENT,
    FROM_OUTSIDE,
    MAX_BYTES,
    MOST_FRAMES,
    MOST_TEXT,
    HangPlace,
    JobStacks,
    RankStacks,
    ThreadStack,
    main_first,
    thread_of,
)
from prismdbg.diagnosis.stack_positions import position_lines, stack_line, stack_position
from prismdbg.errors import CapsuleError
from prismdbg.jobs.storage.kept_stacks import KEPT, keep_stacks, last_stacks
from prismdbg.jobs.storage.run_folder import RunFolder
from prismdbg.model.frame import Frame

MAIN = Frame("/job/train.py", 9, "main")
LOAD = Frame("/job/data.py", 27, "load")
GET = Frame("/venv/lib/python3.11/site-packages/requests/api.py", 60, "get")
HANG = HangPlace(identity="group 0 #10", waiting=(0, 2), never_came={1: "4.2 train.py:37 in average", 3: ""})


def thread(*frames: Frame, name: str = "MainThread", gil: bool = False) -> ThreadStack:
    return ThreadStack(name=name, holds_gil=gil, frames=frames)


def job(*ranks: RankStacks, wall_ns: int = 5, attempt: int = 0) -> JobStacks:
    return JobStacks(taken_wall_ns=wall_ns, attempt=attempt, ranks={r.rank: r for r in ranks}, hang=HANG)


def rank(number: int, *threads: ThreadStack, problem: str = "") -> RankStacks:
    return RankStacks(rank=number, taken_by=FROM_AGENT if problem else FROM_OUTSIDE, threads=threads, problem=problem)


def test_what_is_written_is_read() -> None:
    taken = job(rank(0, thread(LOAD, MAIN, gil=True), thread(name="loader")), rank(1, problem="gone"))
    assert JobStacks.from_fields(Fields(taken.to_json(), "stacks.json")) == taken


@pytest.mark.parametrize(
    "damage",
    [
        {"ranks": 3},
        {"ranks": [{"rank": -1}]},
        {"ranks": [{"rank": 0, "taken_by": "x", "problem": "", "threads": [{"name": "a", "holds_gil": 1}]}]},
        {"hang": {"identity": "x", "waiting": ["0"], "never_came": []}},
        {"taken_wall_ns": "now"},
    ],
)
def test_what_is_hostile_is_refused(damage: dict[str, Any]) -> None:
    with pytest.raises(CapsuleError):
        JobStacks.from_fields(Fields({**job().to_json(), **damage}, "stacks.json"))


def test_of_a_job_that_is_too_large_the_main_threads_are_kept() -> None:
    frames = [Frame("/job/" + "x" * 200, n, "f") for n in range(MOST_FRAMES)]
    large = [rank(n, *(thread(*frames, name=str(t)) for t in range(8))) for n in range(40)]
    kept = job(*large).bounded()
    assert len(dumps(kept.to_json())) <= MAX_BYTES
    assert len(kept.ranks) == 40 and all(len(stacks.threads) == 1 for stacks in kept.ranks.values())
    assert kept.ranks[0].frames[0] == frames[0]


def test_what_py_spy_says_is_bounded_and_the_main_thread_comes_first() -> None:
    told = [{"filename": "f" * 9999, "line": 1, "name": "n"}] * 500
    threads = main_first([thread_of("loader", False, told), thread_of("MainThread", True, told)])
    assert [one.name for one in threads] == ["MainThread", "loader"]
    assert len(threads[0].frames) == MOST_FRAMES and len(threads[0].frames[0].filename) == MOST_TEXT


def test_the_recorders_own_frames_are_left_out() -> None:
    ours = {"filename": "/runs/a/inject/prismdbg/rank/c10d/works.py", "line": 149, "name": "wait"}
    own = {"filename": MAIN.filename, "line": MAIN.line, "name": MAIN.name}
    assert thread_of("MainThread", False, [ours, own]).frames == (MAIN,)


def test_the_run_keeps_the_newest_of_each_attempt(tmp_path: Path) -> None:
    run = RunFolder(tmp_path)
    assert last_stacks(run, 0) is None
    for n in range(KEPT + 3):
        keep_stacks(run, job(rank(0, thread(MAIN)), wall_ns=10**18 + n, attempt=n % 2))
    assert len(list(run.stacks.iterdir())) == KEPT
    newest = last_stacks(run, 1)
    assert newest is not None and newest.taken_wall_ns == 10**18 + KEPT + 1
    assert last_stacks(run, 2) is None


def test_where_ranks_stand_in_words() -> None:
    holds = rank(1, thread(GET, LOAD, MAIN, gil=True))
    assert stack_position(holds) == f"{LOAD}, in requests/api.py:60 in get, holding the GIL"
    assert stack_line(holds) == f"called from {MAIN}"
    assert list(position_lines({0: rank(0, thread(MAIN)), 2: rank(2, problem="py-spy is not installed")})) == [
        f"rank 0 was at {MAIN}",
        "the position of rank 2 is unknown: py-spy is not installed",
    ]


def test_who_came_to_the_hang() -> None:
    absent = "never joined, last at 4.2 train.py:37 in average"
    assert [HANG.arrived(n) for n in range(5)] == [
        "waits", absent, "waits", "never joined; it issued no collective", ""
    ]  # fmt: skip
