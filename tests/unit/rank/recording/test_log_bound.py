"""A rank whose supervisor was killed: nobody shortens its log any more, and the job goes on for weeks."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from waiting import wait_for

from prismdbg.jobs.record import record
from prismdbg.jobs.record.record import RecordRequest
from prismdbg.jobs.record.supervisor import Policy
from prismdbg.rank import agent as agents
from prismdbg.rank import recording_verbs
from prismdbg.rank.recording.log_bound import LogBound
from prismdbg.settings.process_identity import this_process
from prismdbg.settings.rank_config import RankConfig

LOG_BYTES = 100
NO_SUCH_PID = 2**22 + 1


@pytest.fixture
def supervisor() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(["sleep", "600"])
    yield process
    process.kill()
    process.wait()


def recording(supervisor: int, **differs: Any) -> Any:
    """That counts its looks."""
    given_up = list[str]()
    told = SimpleNamespace(lost="", looks=0, written=250, given_up=given_up, notes=[])

    def stats() -> dict[str, int]:
        told.looks += 1
        return {"event_bytes": told.written}

    def give_up(why: str, *, is_said: bool) -> None:
        assert is_said
        told.lost = why
        given_up.append(why)

    told.give_up, told.note = give_up, lambda *said, **_: told.notes.append(said)
    told.recorder = SimpleNamespace(stats=stats)
    told.config = SimpleNamespace(
        log_bytes=LOG_BYTES, supervisor={**this_process(), "pid": supervisor, **differs}, payload_window=(False, 0, 0)
    )
    return told


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agents, "IDLE_S", 0.01)


def test_it_is_recorded_until_its_log_has_grown_by_log_bytes(
    tmp_path: Path, supervisor: subprocess.Popen[bytes]
) -> None:
    told = recording(supervisor.pid)
    recording_verbs.serve(told, tmp_path / "0.sock")
    told.written = 5000  # it may: whoever removes older events is there
    supervisor.kill()
    wait_for(lambda: told.looks, 20, "the end of the supervisor to be noticed, though nobody has waited for it")
    told.written += LOG_BYTES - 1
    seen = told.looks
    wait_for(lambda: told.looks > seen + 1, 20, "another look")
    assert not told.lost
    told.written += 1
    wait_for(lambda: told.lost, 20, "the recording to end")
    assert "has grown by 100 B since (--log-bytes)" in told.lost and "`prismdbg record`" in told.lost
    assert len(told.given_up) == 1 and not told.notes


@pytest.mark.parametrize("differs", [{"pid_namespace": 1}, {"boot_id": "another"}, {"log_bytes": 0}])
def test_a_supervisor_that_cannot_be_seen_may_live_and_one_that_drops_nothing_is_not_missed(
    differs: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks, look = list[None](), LogBound.look
    monkeypatch.setattr(LogBound, "look", lambda bound: looks.append(look(bound)))
    told = recording(NO_SUCH_PID, **differs)
    told.config.log_bytes = differs.get("log_bytes", LOG_BYTES)
    recording_verbs.serve(told, tmp_path / "0.sock")
    wait_for(lambda: len(looks) > 1, 20, "two looks")
    assert not told.looks and not told.lost


def test_ranks_are_told_who_shortens_their_logs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record, "make_socket_dir", lambda: tmp_path / "sockets")
    run = record.prepare(RecordRequest(output=tmp_path / "run", command=("true",), policy=Policy(log_bytes=7)))
    config = RankConfig.load(run.config)
    assert (config.log_bytes, config.supervisor["pid"]) == (7, os.getpid())
    assert json.loads(run.config.read_text())["supervisor"] == this_process()


def test_ranks_of_one_of_several_nodes_are_told_of_their_own_supervisor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(record, "make_socket_dir", lambda: tmp_path / "sockets")
    request = RecordRequest(output=tmp_path / "run", command=("true",), policy=Policy(log_bytes=7))
    run = record.prepare(request)
    of_another = RankConfig.load(run.config)
    replace(of_another, log_bytes=1, supervisor={"pid": 1}).save(run.config)
    node = SimpleNamespace(name="n1", config=tmp_path / "own.json")
    member: Any = SimpleNamespace(run=run, node=node, made=False, first_attempt=0)
    record._environment_among_others(request, member, tmp_path / "sockets")
    own = RankConfig.load(node.config)
    assert (own.log_bytes, own.supervisor) == (7, this_process())
