"""A rank whose process is stopped: no tool can look into it, and it is said why."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
from waiting import wait_for

from prismdbg.jobs.record import stacks


def test_a_stopped_process_is_told_as_such(tmp_path: Path) -> None:
    folder = tmp_path / "3"
    folder.mkdir()
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]) as child:
        try:
            (folder / "rank.json").write_text(json.dumps({"pid": child.pid}))
            os.kill(child.pid, signal.SIGSTOP)
            process = psutil.Process(child.pid)
            wait_for(lambda: process.status() == psutil.STATUS_STOPPED, 20, "the process to stop")
            found = stacks.stacks_of(folder)
            assert (found.rank, found.threads, found.problem) == (3, (), stacks.STOPPED)
        finally:
            child.kill()
