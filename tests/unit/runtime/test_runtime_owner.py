"""Which command made what outlives it, and whether that command has ended."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from prismdbg.runtime import cgroup
from prismdbg.runtime.cgroup import group_name, make_group
from prismdbg.runtime.limits import usual
from prismdbg.runtime.owner import is_gone, owner

SAYS = "from prismdbg.runtime.owner import owner; print(owner(), flush=True); input()"


def test_it_is_gone_once_it_has_ended() -> None:
    child = subprocess.Popen([sys.executable, "-c", SAYS], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert child.stdin is not None and child.stdout is not None
    with child.stdin, child.stdout:
        word = child.stdout.readline().strip()
        assert not is_gone(word) and not is_gone(owner())
        child.kill()
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        assert is_gone(word), "ended, though nobody has waited for it"
        assert child.wait() == -signal.SIGKILL
    assert is_gone(word)


def test_another_process_by_the_same_number_is_not_it() -> None:
    assert is_gone(owner().rpartition(".")[0] + ".1")


@pytest.mark.parametrize("change", [0, 1])
def test_one_of_another_user_or_namespace_counts_as_alive(change: int) -> None:
    words = [*owner().split(".")[:2], "999999999", "1"]
    assert is_gone(".".join(words))
    words[change] += "7"
    assert not is_gone(".".join(words))


@pytest.mark.parametrize("word", ["", ".", "a.b.c.d", "0", "18789", "0.0.-1.2", "\u00b2.\u00b2.\u00b2.\u00b2"])
def test_what_is_no_owner_is_not_judged(word: str) -> None:
    assert not is_gone(word)


def test_groups_of_commands_that_are_gone_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cgroup, "ROOT", tmp_path)
    (tmp_path / "cgroup.controllers").touch()
    gone, theirs = owner().rpartition(".")[0] + ".1", "7.7.7.7"
    left = [tmp_path / f"prismdbg-{word}-session" for word in (gone, theirs, owner(), "18789")]
    for folder in left:
        folder.mkdir()
    make_group(group_name(Path("/sessions/x")), replace(usual(), processes=1))
    assert [folder.exists() for folder in left] == [False, True, True, True]
