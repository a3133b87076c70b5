"""Who speaks to a live rank does so alone."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import pytest

from prismdbg.errors import RankLost, UsageError
from prismdbg.jobs.capture import agent_sockets
from prismdbg.jobs.capture.rank_lock import alone_with_rank

HOLDS = """
import sys
from pathlib import Path
from prismdbg.jobs.capture.rank_lock import alone_with_rank
with alone_with_rank(Path(sys.argv[1])):
    print("held", flush=True)
    input()
"""


def test_one_at_a_time_and_the_next_one_waits(tmp_path: Path) -> None:
    path = tmp_path / "0.sock"
    with alone_with_rank(path):
        with (
            pytest.raises(UsageError, match="another command is capturing") as refused,
            alone_with_rank(path, bound_s=0.05),
        ):
            pass
        assert "the other capture of this rank" in refused.value.hint
        with alone_with_rank(tmp_path / "1.sock", bound_s=0):
            pass
    with alone_with_rank(path, bound_s=0):
        pass


def test_who_is_killed_lets_go(tmp_path: Path) -> None:
    path = tmp_path / "0.sock"
    command = [sys.executable, "-c", HOLDS, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None and holder.stdout.readline() == "held\n"
        with pytest.raises(UsageError), alone_with_rank(path, bound_s=0):
            pass
        holder.kill()
        with alone_with_rank(path):
            pass


def test_a_rank_that_has_ended_has_no_folder(tmp_path: Path) -> None:
    with pytest.raises(RankLost, match="no agent answers"), alone_with_rank(tmp_path / "gone" / "0.sock"):
        pass


def test_an_old_job_that_is_being_captured_is_not_asked_whether_it_lives(tmp_path: Path) -> None:
    path = tmp_path / "0.sock"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        server.listen()
        server.settimeout(0.2)
        with alone_with_rank(path):
            assert agent_sockets.answers(path)
        with pytest.raises(TimeoutError):
            server.accept()
        assert agent_sockets.answers(path)
    assert not agent_sockets.answers(path)
