"""A state snapshot that lies in RUN is captured from anywhere once its supervisor can no longer be asked."""

from __future__ import annotations

import json
import os
import shutil
import traceback
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from capsules import RANK, STATE, make_capsule
from counting import short_folder
from tiny_log import TinyLog, write_training

from prismdbg.capsule import layout
from prismdbg.capsule.capsule_dir import Capsule
from prismdbg.capsule.log.follower import LogFollower
from prismdbg.capsule.log.format import Kind
from prismdbg.capsule.log.notes import NO_STATE
from prismdbg.capsule.manifest import Origin
from prismdbg.cli import main
from prismdbg.cli.exit_codes import ExitCode
from prismdbg.errors import CapsuleError, RankLost, WaitTimeout
from prismdbg.jobs.capture import requests
from prismdbg.jobs.capture.capture import CaptureRequest, capture
from prismdbg.jobs.capture.reach import reach_of_ranks
from prismdbg.jobs.capture.requests import requests_in
from prismdbg.jobs.record.rank_progress import RankProgress
from prismdbg.jobs.storage.gather import gather
from prismdbg.jobs.storage.job_nodes import SILENT_S
from prismdbg.jobs.storage.run_folder import RunFolder, write_json
from prismdbg.log.folding import fold
from prismdbg.protocol.client import NotWaitedFor
from prismdbg.runtime.environment import Environment
from prismdbg.settings.boot import boot_id
from prismdbg.settings.process_stat import start_ticks

NOBODY = 65534
ELSEWHERE: dict[str, dict[str, Any]] = {
    "another host": {"hardware": {"node": "n2"}, "boot_id": "of n2"},
    "rebooted": {"hardware": {"node": os.uname().nodename}, "boot_id": "the boot before"},
    "container": {"hardware": {"node": "pod"}, "boot_id": boot_id(), "pid_namespace": 7},
}


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    """Rank 0 is of node n2, and kept one snapshot; its supervisor is there."""
    run = RunFolder(tmp_path.resolve() / "job" / "run")
    log = run.ranks / "0"
    log.parent.mkdir(parents=True)
    write_training(log, 3, rank=0)
    state = make_capsule(tmp_path / "capsule", STATE).path / layout.STATE
    shutil.copytree(state, run.states / "0" / "0", ignore=shutil.ignore_patterns("prologue"))
    shutil.copytree(state / "prologue", run.states / "0" / "prologue")
    run.run_json.write_text('{"command": ["torchrun"]}')
    write_json(run.environment, Environment(()).to_json())
    run.config.write_text('{"state_every": 5}')
    (run.nodes / "n2").mkdir(parents=True)
    (run.nodes / "job.json").write_text('{"id": "x"}')
    (run.nodes / "n2" / "node.json").write_text("{}")
    (run.nodes / "n2.beat.json").write_text('{"beat": 1}')
    describe(run, "another host")
    return run


def describe(run: RunFolder, where: str) -> None:
    """A process of this number runs here, too."""
    own = {"pid": os.getpid(), "started_ticks": start_ticks(os.getpid()), "uid": os.getuid(), "versions": {}}
    (run.ranks / "0" / "rank.json").write_text(json.dumps({**RANK, **own, "node": "n2", **ELSEWHERE[where]}))


def end(run: RunFolder) -> None:
    (run.nodes / "n2" / "supervisor.json").write_text('{"exit_code": 0}')


def lose(run: RunFolder) -> None:
    beat = run.nodes / "n2.beat.json"
    then = beat.stat().st_mtime - SILENT_S - 33
    os.utime(beat, (then, then))


def taken(run: RunFolder, output: Path) -> Capsule:
    """As `prismdbg capture` takes it."""
    return capture(CaptureRequest(run=run, rank=0, output=output, origin=Origin.STATE, timeout_s=1), print)


@pytest.mark.parametrize("where", ELSEWHERE)
@pytest.mark.parametrize("over", [end, lose])
def test_it_is_taken_from_run(where: str, over: Callable[[RunFolder], None], run: RunFolder, tmp_path: Path) -> None:
    describe(run, where)
    over(run)
    (reach,) = reach_of_ranks(run)
    assert reach.state == ""
    made = taken(run, tmp_path / "mine")
    assert made.manifest.origin is Origin.STATE and made.manifest.rank == 0
    assert requests_in(run) == []


def test_what_its_prologue_lacks_is_a_note_of_the_capsule(run: RunFolder, tmp_path: Path) -> None:
    prologue = run.states / "0" / "prologue"
    shutil.rmtree(prologue)
    log = write_training(prologue, 1, rank=0)
    log.note("remark", text="something else")
    log.note("not_in_prologue", text="20 MB of it are not kept")
    end(run)
    notes = taken(run, tmp_path / "mine").manifest.notes
    assert "20 MB of it are not kept" in notes and "something else" not in notes


def test_it_is_the_default_of_the_command(run: RunFolder, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    end(run)
    assert main.run(["capture", str(run.path), "--rank", "0", "-o", str(tmp_path / "mine")]) == ExitCode.OK
    assert Capsule.open(tmp_path / "mine").manifest.origin is Origin.STATE, capsys.readouterr()


def test_a_supervisor_that_is_there_is_asked(run: RunFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requests, "TAKEN_BOUND_S", 0.3)
    with pytest.raises(WaitTimeout, match="the supervisor of node n2"):
        taken(run, tmp_path / "mine")


@pytest.mark.skipif(shutil.which("rsync") is None, reason="rsync is not installed")
def test_it_is_taken_from_a_gathered_run(run: RunFolder, tmp_path: Path) -> None:
    end(run)
    whole = gather([str(run.path)], tmp_path / "whole", print)
    shutil.rmtree(run.path)
    assert taken(whole, tmp_path / "mine").manifest.origin is Origin.STATE


@pytest.mark.skipif(os.getuid() != 0, reason="only root becomes another user")
@pytest.mark.parametrize("is_owner", [True, False])
def test_it_needs_no_privilege(is_owner: bool, run: RunFolder) -> None:
    """Nor to write into RUN: nobody drops the snapshot any more."""
    end(run)
    with short_folder() as home:
        home.chmod(0o755)
        run = RunFolder(Path(shutil.copytree(run.path, home / "run")))
        (home / "of-nobody").mkdir()
        for path in (home / "of-nobody", run.path, *run.path.rglob("*")):
            os.chown(path, *(NOBODY, NOBODY) if is_owner or path.name == "of-nobody" else (0, 0))
            path.chmod(0o755 if path.is_dir() else 0o644)
        before = sorted(run.path.rglob("*"))
        said = as_nobody(lambda: taken(run, home / "of-nobody" / "mine"))
        assert said == "", said
        assert Capsule.open(home / "of-nobody" / "mine").manifest.origin is Origin.STATE
        assert sorted(run.path.rglob("*")) == before


def as_nobody(do: Callable[[], object]) -> str:
    """What was raised; empty where nothing was."""
    read, write = os.pipe()
    if (child := os.fork()) == 0:
        with os.fdopen(write, "w") as said:
            try:
                os.setgroups([])
                os.setresgid(NOBODY, NOBODY, NOBODY)
                os.setresuid(NOBODY, NOBODY, NOBODY)
                do()
            except BaseException:
                traceback.print_exc(file=said)
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as said:
        told = said.read()
    os.waitpid(child, 0)
    return told


def test_its_supervisor_waits_for_one_no_longer_than_somebody_wants_it(run: RunFolder, tmp_path: Path) -> None:
    shutil.rmtree(run.states)
    pids = Path("/proc/self/ns/pid").stat().st_ino
    here = {"hardware": {"node": os.uname().nodename}, "boot_id": boot_id(), "pid_namespace": pids}
    described = run.ranks / "0" / "rank.json"
    write_json(described, json.loads(described.read_text()) | here)
    asked = CaptureRequest(run=run, rank=0, output=tmp_path / "mine", origin=Origin.STATE, node="n2", timeout_s=0)
    with pytest.raises(WaitTimeout, match="state snapshot"):
        capture(asked, print)
    with pytest.raises(NotWaitedFor, match="state snapshot of rank 0 was cancelled"):
        capture(replace(asked, given_up=lambda: True), print)


@pytest.mark.parametrize("over", [end, lose])
def test_where_only_the_node_has_it_is_said(over: Callable[[RunFolder], None], run: RunFolder, tmp_path: Path) -> None:
    (run.nodes / "n2" / "node.json").write_text(json.dumps({"local": "/scratch/prismdbg-x"}))
    shutil.rmtree(run.states)
    over(run)
    with pytest.raises(RankLost, match="its recorded data is on that node, in /scratch/prismdbg-x") as raised:
        taken(run, tmp_path / "mine")
    assert f"`prismdbg publish {run.path}` on node n2" in raised.value.hint
    (reach,) = reach_of_ranks(run)
    assert "/scratch/prismdbg-x" in reach.state


def test_of_a_checkpoint_that_cannot_be_taken_the_hint_is_what_still_works(run: RunFolder, tmp_path: Path) -> None:
    end(run)
    with pytest.raises(RankLost, match="has ended") as raised:
        capture(CaptureRequest(run=run, rank=0, output=tmp_path / "mine"), print)
    assert "add --origin st" in raised.value.hint


def test_a_snapshot_that_the_log_no_longer_reaches_back_to_is_none(run: RunFolder, tmp_path: Path) -> None:
    end(run)
    described = run.states / "0" / "0" / "state.json"
    described.write_text(json.dumps(json.loads(described.read_text()) | {"past_records": 2}))
    shutil.rmtree(run.ranks / "0")
    log = TinyLog(run.ranks / "0", segment_bytes=1 << 12)
    describe(run, "another host")
    for step in range(9):
        log.complete(log.issue(step, 1))
        log.next_segment()
    assert taken(run, tmp_path / "whole").manifest.origin is Origin.STATE
    assert fold(log.folder, 4 << 12)
    with pytest.raises(CapsuleError, match="has no state snapshot: the log no longer reaches back to those that were"):
        taken(run, tmp_path / "mine")
    (reach,) = reach_of_ranks(run)
    assert reach.state.startswith("none can be used: the log no longer reaches back to those")


NO_SNAPSHOT = "no snapshot yet: the program registered no state"


def told(run: RunFolder, folder: Path) -> dict[str, Any]:
    """What the supervisor of the node tells of the rank whose log is in `folder`, and of its state snapshots."""
    progress = RankProgress(RunFolder(run.path, folder.parent.parent))
    for event in LogFollower(folder).poll():
        progress.feed(folder.name, event)
    return progress.to_json([folder], at_once=True)[folder.name]


def keep_log_on_node(run: RunFolder) -> TinyLog:
    """RUN has nothing of it."""
    local = run.path.parent / "prismdbg-x"
    (run.nodes / "n2" / "node.json").write_text(json.dumps({"local": str(local)}))
    log = TinyLog(local / "ranks" / "0")
    shutil.move(run.states, local / "states")
    return log


def tell(run: RunFolder, folder: Path) -> None:
    (run.nodes / "n2.beat.json").write_text(json.dumps({"beat": 2, "progress": {"0": told(run, folder)}}))


@pytest.mark.parametrize(
    ("backend", "why"),
    [("nccl", "it has an NCCL communicator"), ("cpu:gloo,cuda:nccl", "may have an NCCL communicator"), ("gloo", "")],
)
def test_of_a_log_that_a_node_keeps_the_node_tells_why_there_is_no_checkpoint(
    backend: str, why: str, run: RunFolder
) -> None:
    log = keep_log_on_node(run)
    group = {"name": "0", "ranks": [0, 1], "desc": "default_pg", "backend": backend}
    log.append(Kind.GROUP, json.dumps(group).encode())
    log.complete(log.issue(0, 1))
    tell(run, log.folder)
    (reach,) = reach_of_ranks(run)
    assert why in reach.checkpoint and bool(reach.checkpoint) is bool(why) and reach.checked_there


def test_of_a_log_that_a_node_keeps_the_node_tells_why_there_is_no_snapshot(run: RunFolder) -> None:
    log = keep_log_on_node(run)
    log.complete(log.issue(0, 1))
    tell(run, log.folder)
    (reach,) = reach_of_ranks(run)
    assert reach.state == "", "one is kept, and the log reaches back to it"
    shutil.rmtree(run.path.parent / "prismdbg-x" / "states")
    tell(run, log.folder)
    (reach,) = reach_of_ranks(run)
    assert reach.state.startswith(NO_SNAPSHOT)
    log.note(NO_STATE, text="a DDP module has static_graph")
    tell(run, log.folder)
    (reach,) = reach_of_ranks(run)
    assert reach.state == "no snapshot, and no further ones are taken: a DDP module has static_graph"
    (run.nodes / "n2.beat.json").write_text('{"beat": 3}')
    (reach,) = reach_of_ranks(run)
    assert reach.state.startswith(NO_SNAPSHOT), "it has just begun: nothing is told of it so far"


def test_a_damaged_snapshot_is_why_there_is_none(run: RunFolder) -> None:
    log = keep_log_on_node(run)
    log.complete(log.issue(0, 1))
    (run.path.parent / "prismdbg-x" / "states" / "0" / "0" / "state.json").write_text("{")
    tell(run, log.folder)
    (reach,) = reach_of_ranks(run)
    assert "state.json" in reach.state


def test_why_no_further_snapshots_are_taken_is_said_of_a_rank_of_this_node(run: RunFolder) -> None:
    shutil.rmtree(run.states)
    shutil.rmtree(run.ranks / "0")
    log = TinyLog(run.ranks / "0")
    describe(run, "another host")
    log.complete(log.issue(0, 1))
    log.note(NO_STATE, text="a DDP module has static_graph")
    end(run)
    (reach,) = reach_of_ranks(run)
    assert reach.state.endswith("are taken: a DDP module has static_graph")
