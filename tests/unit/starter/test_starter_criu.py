"""What the starter asks of criu, with a program in its place that only says what it was given."""

from __future__ import annotations

import resource
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from starter_parts import starter_parts

SAYS = 'for word in "$@"; do echo "$word"; done > "{}"; exit {}'


@pytest.fixture(scope="module")
def starter() -> Any:
    return starter_parts()


@pytest.fixture
def asked(tmp_path: Path) -> dict[str, Any]:
    (tmp_path / "images").mkdir()
    where = {"images": str(tmp_path / "images"), "work": str(tmp_path), "log": "the.log", "timeout_s": 20}
    return {**where, "root_pid": 7, "pids": [7, 8], "standards": [(1, "tty[8800:1a]")], "leads_session": False}


@pytest.fixture
def engine(starter: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Nothing of this machine's PIDs or of this process's limits is changed; `code` is what the program ends with."""
    monkeypatch.setattr(resource, "setrlimit", lambda *_: None)

    def make(code: int = 0, does: str = SAYS) -> Any:
        last = SimpleNamespace(most=1 << 22, set=lambda pid: None)
        monkeypatch.setitem(starter.Criu.__init__.__globals__, "LastPid", lambda: last)
        script = does.format(tmp_path / "given", code)
        return starter.engine_of({"engine": "criu", "command": ["/bin/sh", "-c", script]})

    return make


def given(tmp_path: Path) -> list[str]:
    return (tmp_path / "given").read_text().split("\n")


def test_a_dump_leaves_the_rank_stopped(engine: Any, asked: dict[str, Any], tmp_path: Path) -> None:
    engine().dump(asked)
    words = given(tmp_path)
    assert words[words.index("--tree") + 1] == "7"
    assert words[words.index("--external") + 1] == "tty[8800:1a]"
    assert words[words.index("--timeout") + 1] == "18"
    assert {"--leave-stopped", "--shell-job", "--no-default-config"} <= set(words)


def test_its_own_bound_is_that_of_freezing_alone(engine: Any, asked: dict[str, Any], tmp_path: Path) -> None:
    engine().dump(asked | {"timeout_s": 2000})
    words = given(tmp_path)
    assert words[words.index("--timeout") + 1] == "88"


def test_a_restore_replaces_the_streams(engine: Any, asked: dict[str, Any], tmp_path: Path) -> None:
    engine().restore(asked | {"leads_session": True}, {"tty[8800:1a]": 1})
    words = given(tmp_path)
    assert words[words.index("--inherit-fd") + 1] == "fd[1]:tty[8800:1a]"
    assert {"--deprecated", "--leave-stopped"} <= set(words) and "--shell-job" not in words
    engine().restore(asked, {})
    assert {"--leave-stopped", "--shell-job"} <= set(given(tmp_path)) and "--deprecated" not in given(tmp_path)


@pytest.mark.parametrize(
    ("does", "timeout_s", "said"), [(SAYS, 20, "could not {} the rank"), ("exec /bin/sleep 100", 0.1, "within 0.1 s")]
)
def test_one_that_refuses_or_hangs(
    starter: Any, engine: Any, asked: dict[str, Any], does: str, timeout_s: float, said: str
) -> None:
    told = asked | {"timeout_s": timeout_s}
    with pytest.raises(starter.DumpError, match=said.format("save")):
        engine(1, does).dump(told)
    with pytest.raises(starter.RestoreError, match=said.format("restore")):
        engine(1, does).restore(told, {})
