"""What is said of each rank before anything is captured, and that it is what a capture would say."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from tiny_log import TinyLog

from prismdbg.capsule.log.format import Kind
from prismdbg.checkpoint import choice
from prismdbg.cli.commands import doctor
from prismdbg.errors import CapsuleError, FacilityError, UsageError
from prismdbg.jobs.capture.reach import Reach, reach_of_ranks
from prismdbg.jobs.storage.job_nodes import SILENT_S
from prismdbg.jobs.storage.run_folder import RunFolder
from prismdbg.settings.boot import boot_id
from prismdbg.settings.process_stat import start_ticks


def rank(run: RunFolder, name: str, *, backend: str = "gloo", **described: Any) -> None:
    """Of this very process, unless it is described otherwise. None of its payloads is there."""
    log = TinyLog(run.ranks / name, int(name))
    group = {"name": "0", "ranks": [0, 1], "desc": "default_pg", "backend": backend}
    log.append(Kind.GROUP, json.dumps(group).encode())
    log.complete(log.issue(0, 1, seq=0))
    own = {
        "rank": int(name),
        "pid": os.getpid(),
        "pid_namespace": Path("/proc/self/ns/pid").stat().st_ino,
        "started_ticks": start_ticks(os.getpid()),
        "uid": os.getuid(),
        "hardware": {"node": os.uname().nodename},
        "socket": "/nowhere",
        "world_size": 2,
    }
    (log.folder / "rank.json").write_text(json.dumps({**own, **described}))


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunFolder:
    monkeypatch.setattr(choice, "find", lambda: None)  # a fake: an engine that is there
    (tmp_path / "run.json").write_text("{}")
    (tmp_path / "config.json").write_text('{"state_every": 0}')
    return RunFolder(tmp_path)


def only(run: RunFolder) -> Reach:
    (found,) = reach_of_ranks(run)
    return found


def test_a_rank_that_runs_here_can_be_checkpointed(run: RunFolder) -> None:
    rank(run, "0")
    found = only(run)
    assert (found.checkpoint, found.checked_there, found.is_any) == ("", False, True)
    assert "--window all" in found.start and found.state == "recorded without --state-every"
    run.config.write_text('{"state_every": 5}')
    assert "registered no state" in only(run).state


def test_without_an_engine_the_reason_is_its_own(run: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> None:
        raise FacilityError("CRIU is not installed", hint="install it")

    monkeypatch.setattr(choice, "find", missing)
    rank(run, "0")
    assert only(run).checkpoint == "CRIU is not installed" and not only(run).is_any


@pytest.mark.parametrize(
    ("described", "why"),
    [
        ({"backend": "nccl"}, "it has an NCCL communicator"),
        ({"pid_namespace": 7}, "rank 0 runs in another PID namespace than this command"),
        (
            {"pid_namespace": 7, "hardware": {"node": "a container's"}, "boot_id": boot_id()},
            "rank 0 runs in another PID namespace than this command",
        ),
        ({"started_ticks": 3}, "rank 0 has ended"),
        ({"hardware": {"node": "elsewhere"}}, "rank 0 runs on node elsewhere"),
    ],
)
def test_what_no_checkpoint_can_be_taken_of(described: dict[str, Any], why: str, run: RunFolder) -> None:
    rank(run, "0", **described)
    assert why in only(run).checkpoint and not only(run).is_any


def test_a_rank_that_has_just_made_its_folder_is_told_as_that(run: RunFolder) -> None:
    (run.ranks / "0").mkdir(parents=True)
    assert "no rank.json" in only(run).checkpoint


@pytest.mark.parametrize("field", ["pid", "pid_namespace", "uid", "socket", "hardware"])
def test_a_damaged_rank_json_is_one_error_that_names_it(field: str, run: RunFolder) -> None:
    rank(run, "0")
    file = run.ranks / "0" / "rank.json"
    whole = json.loads(file.read_text())
    missing = f"{file} is incomplete: it lacks {'hardware.node' if field == 'hardware' else field}"
    for damaged, said in (
        ({name: value for name, value in whole.items() if name != field}, missing),
        (whole | {field: ["x"]}, f"{file}: {field}"),
        (whole | {"hardware": {"node": 5}}, "it lacks hardware.node"),
    ):
        file.write_text(json.dumps(damaged))
        with pytest.raises(CapsuleError) as raised:
            reach_of_ranks(run)
        assert said in str(raised.value), str(raised.value)


def test_a_rank_json_of_another_node_without_its_pid_is_named(run: RunFolder) -> None:
    rank(run, "0", node="n2")
    file = run.ranks / "0" / "rank.json"
    file.write_text(json.dumps({name: value for name, value in json.loads(file.read_text()).items() if name != "pid"}))
    with pytest.raises(CapsuleError) as raised:
        reach_of_ranks(run)
    assert str(raised.value).startswith(f"{file}: pid is missing")


def test_a_run_without_ranks_is_an_error(run: RunFolder) -> None:
    with pytest.raises(UsageError, match="no data of any rank"):
        CliRunner().invoke(doctor.command, ["--job", str(run.path)], standalone_mode=False, catch_exceptions=False)


@pytest.mark.parametrize(("silent_s", "why"), [(1, ""), (SILENT_S + 40, "no heartbeat")])
def test_the_supervisor_of_another_node_takes_it_while_it_is_there(silent_s: float, why: str, run: RunFolder) -> None:
    (run.nodes / "n2").mkdir(parents=True)
    (run.nodes / "job.json").write_text('{"id": "x"}')
    (run.nodes / "n2" / "node.json").write_text("{}")
    beat = run.nodes / "n2.beat.json"
    beat.write_text('{"beat": 1}')
    then = beat.stat().st_mtime - silent_s
    os.utime(beat, (then, then))
    rank(run, "0", node="n2", boot_id="another machine")
    found = only(run)
    assert found.checked_there and bool(found.checkpoint) is bool(why) and why in found.checkpoint


def test_each_reason_is_said_once_and_the_exit_code_tells_of_a_rank_out_of_reach(run: RunFolder) -> None:
    rank(run, "0")
    rank(run, "1", started_ticks=3)
    said = CliRunner().invoke(doctor.command, ["--job", str(run.path)], standalone_mode=False)
    assert said.return_value == 4, said.output
    assert said.output.count("recorded without --state-every") == 1, said.output
    assert "no state snapshot of ranks 0, 1: recorded without" in said.output, said.output
    assert "no checkpoint of rank 1: rank 1 has ended" in said.output, said.output
    as_json = CliRunner().invoke(doctor.command, ["--job", str(run.path), "--json"], standalone_mode=False)
    assert [one["any"] for one in json.loads(as_json.stdout)["ranks"]] == [True, False]
