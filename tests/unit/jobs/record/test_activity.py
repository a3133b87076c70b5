"""What a rank's process does while others wait for it, seen on real processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace

import pytest
from waiting import wait_for

from prismdbg.capsule.log.events import Group
from prismdbg.diagnosis.hang import NS_PER_S
from prismdbg.jobs.record import activity, hangs
from prismdbg.jobs.record.activity import Activity, Used, used_by
from prismdbg.jobs.record.hangs import Delays, HangWatch
from tests.unit.followed import followed
from tests.unit.logs import WORLD, lone_collective

BURNS = "while True: pass"
SLEEPS = "import sys; sys.stdin.read()"
IN_A_CHILD = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {BURNS!r}])"
IN_MANY = "import subprocess, sys\nwhile True: subprocess.run([sys.executable, '-c', 'pass'])"
IN_A_GRANDCHILD = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {IN_A_CHILD!r}])"
ENOUGH_NS = 300_000_000


@contextmanager
def running(program: str) -> Iterator[int]:
    """In a session of its own, which ends with it."""
    line = ["setpriv", "--pdeathsig", "KILL", sys.executable, "-c", program]
    with subprocess.Popen(line, stdin=subprocess.PIPE, start_new_session=True) as process:
        try:
            yield process.pid
        finally:
            os.killpg(process.pid, signal.SIGKILL)


@pytest.mark.parametrize("program", [BURNS, IN_A_CHILD, IN_A_GRANDCHILD, IN_MANY])
def test_what_a_process_and_its_children_compute_counts(program: str) -> None:
    with running(program) as pid:
        begun = used_by(pid).computed_ns
        wait_for(lambda: used_by(pid).computed_ns > begun + ENOUGH_NS, 60, "the process to compute")


def test_who_computes_in_a_child_is_busy_and_who_sleeps_is_not() -> None:
    with running(IN_A_CHILD) as computes, running(SLEEPS) as sleeps:
        pids = {0: computes, 1: sleeps}
        wait_for(lambda: used_by(computes).computed_ns > ENOUGH_NS, 60, "the child to compute")
        looks = Activity()
        looks.look(time.monotonic_ns(), pids)
        busy = wait_for(lambda: _of_a_while(looks, pids), 60, "the child to have had, or wanted, a processor")
        assert busy == {0}


def test_other_nodes_are_told_of_a_rank_that_computes_and_issues_nothing() -> None:
    """Also where nobody on this node waits for it."""
    with running(BURNS) as computes, running(SLEEPS) as sleeps:
        watch, pids = HangWatch("60s"), {0: computes, 1: sleeps}
        for folder in ("0", "1"):
            watch.feed(folder, Group(name="0", ranks=(0, 1, 2, 3)))

        def is_told() -> bool:
            return watch.delays(time.monotonic_ns(), pids).busy == {0}

        wait_for(is_told, 60, "the one rank to have computed for most of the time, and the other not")


@pytest.mark.parametrize("computes_first", [False, True])
def test_other_nodes_are_told_what_a_rank_does_now(computes_first: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not on average since somebody here was quiet: a quarter of an hour ago it was loading its data."""
    computed_ns = now_ns = 0
    monkeypatch.setattr(hangs, "time", SimpleNamespace(monotonic_ns=lambda: now_ns))
    monkeypatch.setattr(activity, "used_by", lambda _pid: Used(computed_ns, 0))
    watch = HangWatch("60s")
    watch.feed("0", Group(name="0", ranks=(0, 1)))
    for second in range(960):
        now_ns += NS_PER_S
        computed_ns += NS_PER_S * ((second < 900) == computes_first)
        told = watch.delays(now_ns, {0: 7})
    assert told.busy == (set() if computes_first else {0})


def test_other_nodes_are_asked_once_somebody_has_waited_for_the_bound(watched: HangWatch) -> None:
    asked: list[int] = []

    def elsewhere() -> Delays:
        asked.append(1)
        return Delays(busy=frozenset({0}))

    assert watched.due(59 * NS_PER_S, {}, elsewhere) == ([], []) and not asked
    hung, slow = watched.due(72 * NS_PER_S, {}, elsewhere)
    assert (hung, len(slow), asked) == ([], 1, [1])
    (hung, _) = watched.due(301 * NS_PER_S, {}, elsewhere)
    assert len(hung) == 1


def test_who_waits_for_a_rank_that_is_held_elsewhere_does_not_hang(watched: HangWatch) -> None:
    held = ((5 * NS_PER_S, 72 * NS_PER_S),)
    assert watched.due(72 * NS_PER_S, {}, lambda: Delays(held=held)) == ([], [])
    assert watched.due(90 * NS_PER_S, {}, lambda: Delays(held=held)) == ([], [])
    (hung, _) = watched.due(130 * NS_PER_S, {}, lambda: Delays(held=held))
    assert len(hung) == 1


@pytest.fixture
def watched() -> HangWatch:
    """Rank 2 waits from the first second on for rank 0, of another node."""
    watch = HangWatch("60s")
    watch.feed("2", Group(name=WORLD, ranks=(0, 2)))
    for event in followed([lone_collective(time_created_ns=NS_PER_S)]):
        watch.feed("2", event)
    return watch


def _of_a_while(looks: Activity, pids: dict[int, int]) -> frozenset[int]:
    busy = looks.look(time.monotonic_ns(), pids)
    return busy.in_line | busy.computing


def test_a_process_that_has_ended_has_used_nothing() -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    assert used_by(ended.pid).computed_ns == 0
