"""A rank that takes turns does not outlive whoever gives them."""

from __future__ import annotations

import os
import subprocess
import sys

from prismdbg.settings.emulation import LEFT_EXIT

BOUND_S = 30.0
RUNS_ON = """
import sys, threading
from prismdbg.rank.emulation.scheduler_client import SchedulerClient
turn = SchedulerClient(int(sys.argv[1]), int(sys.argv[2]))
print("runs", flush=True)
threading.Event().wait(60.0)
"""


def test_a_rank_that_runs_ends_when_nobody_gives_turns_any_more() -> None:
    ask_fd, go_fd = os.pipe()
    hear_fd, say_fd = os.pipe()
    command = (sys.executable, "-c", RUNS_ON, str(ask_fd), str(say_fd))
    with subprocess.Popen(command, pass_fds=(ask_fd, say_fd), stdout=subprocess.PIPE) as rank:
        assert rank.stdout is not None
        assert rank.stdout.readline() == b"runs\n"
        for descriptor in (ask_fd, say_fd, hear_fd, go_fd):
            os.close(descriptor)
        assert rank.wait(BOUND_S) == LEFT_EXIT
