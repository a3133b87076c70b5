"""A program that is too slow is killed with all it started, and nothing else is."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from waiting import wait_for

from prismdbg.checkpoint import bounded
from prismdbg.checkpoint.bounded import run_bounded
from prismdbg.errors import WaitTimeout
from prismdbg.model.meanwhile import looked_on_by


def test_output_and_code_of_one_that_ends() -> None:
    ran = run_bounded(["sh", "-c", "echo out; echo err >&2; exit 3"], timeout_s=20, what="a shell")
    assert ran.returncode == 3
    assert ran.output.splitlines() == ["out", "err"]


def test_one_that_takes_long_is_told_as_long_work(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(bounded, "TOLD_S", 0.01)
    told: list[str] = []
    go = tmp_path / "go"

    def show(text: str) -> None:
        told.append(text)
        go.touch()

    with looked_on_by(SimpleNamespace(show=show, over=lambda: told.append("over"))):
        ran = run_bounded(
            ["sh", "-c", f"until [ -e {go} ]; do :; done; echo out"], timeout_s=60, what="a shell", doing="measuring"
        )
        assert ran.output == "out\n" and told[0] == "measuring" and told[-1] == "over"
        told.clear()
        run_bounded(["true"], timeout_s=60, what="a part of a longer work")
        assert told == []


def test_one_that_does_not_end_is_killed_with_its_children(tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    script = f"(echo $BASHPID > {pid_file}; exec sleep 1000) & wait"
    with pytest.raises(WaitTimeout, match=r"0\.5 s for the slow one"):
        run_bounded(["bash", "-c", script], timeout_s=0.5, what="the slow one")
    child = int(pid_file.read_text())
    wait_for(lambda: not _lives(child), 10, "the child to be gone")


def test_what_a_program_leaves_behind_is_killed_too(tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    program = (
        "import os, sys, time\n"
        "child = os.fork()\n"
        "if child == 0:\n"
        "    os.dup2(os.open('/dev/null', os.O_WRONLY), 1); os.dup2(1, 2)\n"
        "    time.sleep(1000)\n"
        f"open({str(pid_file)!r}, 'w').write(str(child))\n"
    )
    assert run_bounded([sys.executable, "-c", program], timeout_s=30, what="a forking one").returncode == 0
    wait_for(lambda: not _lives(int(pid_file.read_text())), 10, "the orphan to be gone")


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
