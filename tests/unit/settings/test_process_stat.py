"""What the kernel tells of a process whose name is no text: it is cut at 15 bytes, also inside a character."""

from __future__ import annotations

import ctypes
import os
import shutil
from pathlib import Path

import pytest
from spawning import Spawn
from starter_parts import starter_parts
from waiting import wait_for

from prismdbg.jobs.record import deaths
from prismdbg.jobs.storage import ranks_alive
from prismdbg.jobs.storage.peak import peak_bytes
from prismdbg.rank.c10d import gloo_threads
from prismdbg.rank.emulation import real_groups
from prismdbg.runtime.started_rank import find_below
from prismdbg.settings.process_stat import start_ticks
from prismdbg.telemetry.collectors.processes import ProcessCollector

NAME = "ü" * 8
PR_SET_NAME = 15  # linux/prctl.h


@pytest.fixture
def named(tmp_path: Path, spawn: Spawn) -> int:
    """The PID of a process of that name."""
    sleep = shutil.which("sleep")
    assert sleep is not None
    (tmp_path / NAME).symlink_to(sleep)
    pid = spawn(str(tmp_path / NAME), "1000").pid
    cut = NAME.encode()[:15] + b"\n"
    wait_for(lambda: Path(f"/proc/{pid}/comm").read_bytes() == cut, 10, "the program to be there")
    return pid


def test_it_is_found_and_asked_as_any_other(named: int) -> None:
    assert start_ticks(named) > 0
    assert peak_bytes(named) > 0
    assert find_below(os.getpid(), named) == named
    assert ranks_alive._is_it(named, named, Path("/proc/self/ns/pid").stat().st_ino)
    assert not deaths._is_dying(named)
    assert starter_parts()._lives(named)


def test_telemetry_names_it(named: int) -> None:
    assert ProcessCollector._title.__get__(_Proc())(str(named)).startswith(NAME[:7])


class _Proc:
    _proc = Path("/proc")


def test_a_thread_of_that_name_is_none_of_gloo() -> None:
    """In a child, which has this thread alone."""
    if (pid := os.fork()) == 0:
        code = 1
        try:
            ctypes.CDLL(None).prctl(PR_SET_NAME, NAME.encode()[:15])
            code = len(list(gloo_threads._states())) + real_groups._runs_gloo()
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
