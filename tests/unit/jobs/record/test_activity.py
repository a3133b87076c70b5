"""What a rank's process does while others wait for it, seen on real processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from waiting import wait_for

from prismdbg.jobs.record.activity import Activity, used_by

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
        activity = Activity()
        activity.look(time.monotonic_ns(), pids)
        busy = wait_for(lambda: _of_a_while(activity, pids), 60, "the child to have had, or wanted, a processor")
        assert busy == {0}


def _of_a_while(activity: Activity, pids: dict[int, int]) -> frozenset[int]:
    busy = activity.look(time.monotonic_ns(), pids)
    return busy.in_line | busy.computing


def test_a_process_that_has_ended_has_used_nothing() -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    assert used_by(ended.pid).computed_ns == 0
