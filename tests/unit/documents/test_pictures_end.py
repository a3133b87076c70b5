"""Ctrl-C ends `make pictures`, whatever hangs there."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from waiting import wait_for

from prismdbg.jobs.storage.ranks_alive import is_alive

EXAMPLES = Path(__file__).parents[3] / "examples"
BEGIN = """
import sys, time, threading, pictures
pictures.NEUTRAL = pictures.Path(sys.argv[1])
pictures.OURS = pictures.NEUTRAL / "ours"
"""
# A job that hears nothing but a kill, and a process of its own.
DEAF = """
def draw():
    began = pictures.Path(sys.argv[2] + ".began")
    command = ["sh", "-c", "trap '' INT TERM; setsid sleep 300 & echo $$ $! > $0; wait; sleep 300", str(began)]
    with pictures.child(command):
        while not began.is_file() or not began.read_text().strip():
            time.sleep(0.01)
        began.rename(sys.argv[2])  # from here on it is known who is to be ended
        time.sleep(300)
"""
# Python waits for such a thread before it ends.
HELD = """
def draw():
    threading.Thread(target=time.sleep, args=(300,)).start()
    open(sys.argv[2], "w").write("0")
    time.sleep(300)
"""
END = "\npictures.draw = draw\npictures.main()\n"


@pytest.mark.parametrize("what", [DEAF, HELD], ids=["job", "thread"])
def test_ctrl_c_ends_it_and_all_that_it_started(tmp_path: Path, what: str) -> None:
    copy, told = tmp_path / "copy", tmp_path / "told"
    copy.mkdir()
    (copy / "ours").touch()
    program = [sys.executable, "-c", BEGIN + what + END, str(copy), str(told)]
    path = os.pathsep.join([str(EXAMPLES), *sys.path])
    with subprocess.Popen(program, env={**os.environ, "PYTHONPATH": path}, start_new_session=True) as process:
        try:
            wait_for(lambda: told.is_file() and told.read_text().strip(), 60, "it to run")
            os.killpg(process.pid, signal.SIGINT)
            assert process.wait(30) == 128 + signal.SIGINT
        finally:
            process.kill()
    for pid in map(int, told.read_text().split()):
        wait_for(lambda pid=pid: not pid or not is_alive(pid), 10, f"{pid}, which was killed, to be gone")
    assert what == DEAF or not copy.exists()
