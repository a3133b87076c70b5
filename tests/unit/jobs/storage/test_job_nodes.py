"""What the files of several supervisors say together, and of whom nothing is heard any more."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest
from tiny_log import write_training

from prismdbg.cli import main
from prismdbg.errors import CapsuleError, UsageError
from prismdbg.jobs.storage import run_report
from prismdbg.jobs.storage.inventory import remove
from prismdbg.jobs.storage.job_nodes import (
    SILENT_S,
    NodeFolder,
    NodeState,
    is_shared,
    last_beat,
    merged,
    node_states,
    supervisor_report,
)
from prismdbg.jobs.storage.local_logs import LocalFolder
from prismdbg.jobs.storage.run_folder import RunFolder, read_json


def node(run: RunFolder, name: str, *, silent_s: float, **supervisor: object) -> None:
    folder = run.nodes / name
    folder.mkdir(parents=True)
    (run.nodes / "job.json").write_text('{"id": "x"}')
    (folder / "node.json").write_text("{}")
    (folder / "supervisor.json").write_text(json.dumps(supervisor))
    beat = run.nodes / f"{name}.beat.json"
    beat.write_text(json.dumps({"beat": 3, "gone": ["1"]}))
    then = beat.stat().st_mtime - silent_s
    os.utime(beat, (then, then))


def rank(run: RunFolder, name: str, node: str, *, quiet_s: float = 0.0) -> None:
    folder = run.ranks / name
    folder.mkdir(parents=True)
    (folder / "rank.json").write_text(json.dumps({"rank": int(name.partition(".")[0]), "pid": 1, "node": node}))
    log = folder / "events.00000.seg"
    log.write_bytes(b"")
    then = log.stat().st_mtime - quiet_s
    os.utime(log, (then, then))


def test_each_node_has_a_state_and_its_ranks(tmp_path: Path) -> None:
    run = RunFolder(tmp_path)
    node(run, "n1", silent_s=1)
    node(run, "n2", silent_s=SILENT_S + 40)
    node(run, "n3", silent_s=SILENT_S + 40)
    node(run, "n4", silent_s=SILENT_S + 40, exit_code=1)
    for name, owner, quiet_s in (("0", "n1", 0), ("1", "n1", 0), ("2", "n2", 45), ("3", "n3", 1)):
        rank(run, name, owner, quiet_s=quiet_s)
    states = {state.name: state for state in node_states(run)}
    assert {name: state.state for name, state in states.items()} == {
        "n1": "running",
        "n2": "lost",
        "n3": "supervisor lost",
        "n4": "ended with 1",
    }
    assert states["n1"].ranks == ("0", "1") and states["n1"].has("0") and not states["n1"].has("1")
    assert not states["n2"].has("2") and states["n3"].has("3")
    assert states["n2"].text.startswith("node n2 (rank 2): lost, no heartbeat for 50 s"), states["n2"].text
    assert "its ranks still run" in states["n3"].text


def test_a_node_whose_ranks_recorded_long_after_its_last_heartbeat_is_not_certainly_lost(tmp_path: Path) -> None:
    """Its supervisor was killed ten minutes ago, and its ranks issue something every half minute."""
    run = RunFolder(tmp_path)
    node(run, "n2", silent_s=600)
    rank(run, "2", "n2", quiet_s=15)
    node(run, "n3", silent_s=50)
    rank(run, "3", "n3", quiet_s=45)
    late, lost = node_states(run)
    assert late.recorded_s == pytest.approx(15, abs=5) and lost.recorded_s is None
    assert late.state == lost.state == "lost"
    assert ", its ranks recorded last 1" in late.text and "recorded" not in lost.text
    (run.nodes / "n2" / "published.json").write_text("{}")
    assert node_states(run)[0].recorded_s is None, "whoever copied its logs wrote these files"


def test_the_ranks_of_a_node_are_named_in_their_order(tmp_path: Path) -> None:
    """A folder lists its files in any order, and by name 10 is before 9."""
    run = RunFolder(tmp_path)
    node(run, "n1", silent_s=1)
    for name in ("11", "3", "9.1", "10", "0"):
        rank(run, name, "n1")
    (state,) = node_states(run)
    assert state.ranks == ("0", "3", "9.1", "10", "11")


def test_what_was_before_a_restart_is_over(tmp_path: Path) -> None:
    run = RunFolder(tmp_path)
    told = {"signal": 15, "wall_ns": 5}
    node(run, "n1", silent_s=90, exit_code=1, ended_wall_ns=7, interrupted=told, capsules=["a"])
    node(run, "n2", silent_s=90)
    (run.nodes / ".restart.1").mkdir()
    assert "exit_code" not in supervisor_report(run), "nobody has joined yet"
    node(run, "n1.restart1", silent_s=1)
    (run.nodes / "n1.restart1" / "node.json").write_text('{"restart": 1}')
    assert {state.name: state.state for state in node_states(run)} == {
        "n1": "ended with 1",
        "n1.restart1": "running",
        "n2": "lost before the job was restarted",
    }
    report = supervisor_report(run)
    assert "exit_code" not in report and not report["interrupted"] and report["capsules"] == ["a"]
    (run.nodes / "n1.restart1" / "supervisor.json").write_text('{"exit_code": 0, "ended_wall_ns": 3}')
    report = supervisor_report(run)
    assert (report["exit_code"], report["ended_wall_ns"]) == (0, 3), "how it ended then"


def test_a_node_that_was_told_to_end_and_killed_is_not_lost(tmp_path: Path) -> None:
    """As schedulers do with a job that takes long to end."""
    run = RunFolder(tmp_path)
    told = {"signal": 15, "wall_ns": 5}
    node(run, "n1", silent_s=SILENT_S + 40, interrupted=told)
    node(run, "n2", silent_s=SILENT_S - 5, interrupted=told)
    node(run, "n3", silent_s=SILENT_S + 40, interrupted={})
    states = {state.name: state.state for state in node_states(run)}
    assert states == {"n1": "killed after it was told to end", "n2": "running", "n3": "lost"}


@pytest.mark.parametrize("name", ["node.json", "restart.json"])
def test_damaged_files_of_a_restart_are_one_error(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_text('{"restart": "x", "first_attempt": -3}')
    with pytest.raises(CapsuleError, match=name):
        read_json(path)


def test_a_job_with_one_supervisor_has_its_own_report(tmp_path: Path) -> None:
    run = RunFolder(tmp_path)
    run.supervisor_json.write_text('{"exit_code": 0, "incidents": []}')
    assert not is_shared(run) and node_states(run) == []
    assert supervisor_report(run) == {"exit_code": 0, "incidents": []}


def test_reports_become_one() -> None:
    one = {
        "incidents": [{"kind": "nan", "text": "x", "ranks": [0]}],
        "capsules": ["a"],
        "problems": ["full"],
        "deaths": ["0"],
        "how_they_died": [{"rank": "0", "wall_ns": 20}],
        "exit_code": 0,
        "ended_wall_ns": 30,
    }
    other = {
        "deaths": ["2.1"],
        "how_they_died": [{"rank": "2.1", "wall_ns": 10}],
        "interrupted": {"signal": 2, "wall_ns": 5},
        "exit_code": 3,
        "ended_wall_ns": 25,
    }
    whole = merged([("n1", one), ("n2", other)])
    assert whole["incidents"] == [{"kind": "nan", "text": "x", "ranks": [0], "node": "n1"}]
    assert (whole["capsules"], whole["problems"], whole["deaths"]) == (["a"], ["node n1: full"], ["2.1", "0"])
    assert (whole["exit_code"], whole["ended_wall_ns"], whole["interrupted"]["signal"]) == (3, 30, 2)


def test_a_job_goes_on_while_a_part_of_it_does() -> None:
    assert "exit_code" not in merged([("n1", {"exit_code": 0}), ("n2", {})])


def elastic(run: RunFolder, *, n1_ranks: tuple[str, ...], **n1: object) -> None:
    """n2 was told to end; n1 went on without it."""
    told = {"signal": 15, "wall_ns": 5}
    node(run, "n1", silent_s=90, **n1)
    node(run, "n2", silent_s=90, exit_code=143, ended_wall_ns=6, interrupted=told)
    for name in n1_ranks:
        rank(run, name, "n1")
    rank(run, "1", "n2")


@pytest.mark.parametrize(("ranks", "has_left"), [(("0", "0.1"), True), (("0",), False)])
def test_how_a_node_ended_without_which_the_job_began_anew_is_not_how_the_job_did(
    ranks: tuple[str, ...], has_left: bool, tmp_path: Path
) -> None:
    run = RunFolder(tmp_path)
    elastic(run, n1_ranks=ranks, exit_code=0, ended_wall_ns=9)
    report = supervisor_report(run)
    assert report["exit_code"] == (0 if has_left else 143)
    assert report["interrupted"] == ({} if has_left else {"signal": 15, "wall_ns": 5, "node": "n2", "of_some": True})


def test_a_node_whose_logs_are_not_yet_in_run_is_read_where_they_are(tmp_path: Path) -> None:
    """The command runs on n2. Its rank ran to the end with those of n1, which counts one restart more."""
    run, local = RunFolder(tmp_path / "run"), LocalFolder(tmp_path / "prismdbg-n2")
    elastic(run, n1_ranks=("0", "0.1"), exit_code=0)
    write_training(local.ranks / "1")
    local.describe(run.path, "n2")
    (run.nodes / "n2" / "node.json").write_text(json.dumps({"local": str(local.path)}))
    for name, owner in (("0", "n1"), ("0.1", "n1"), ("1", "n2")):
        (run.ranks / name / "events.00000.seg").unlink()
        about = {"rank": int(name[0]), "pid": 1, "node": owner, "started_ns": 10**18 - 2 * 10**9, "world_size": 2}
        (run.ranks / name / "rank.json").write_text(json.dumps(about))
    shutil.copy(run.ranks / "1" / "rank.json", local.ranks / "1")
    assert supervisor_report(run)["exit_code"] == 143


def test_the_end_of_all_nodes_is_that_of_the_job(tmp_path: Path) -> None:
    run = RunFolder(tmp_path)
    elastic(run, n1_ranks=("0", "0.1"), exit_code=1, interrupted={"signal": 15, "wall_ns": 7})
    report = supervisor_report(run)
    assert (report["exit_code"], report["interrupted"]) == (1, {"signal": 15, "wall_ns": 5, "node": "n2"})


def test_a_node_that_has_no_rank_in_run_is_not_taken_for_one_that_left(tmp_path: Path) -> None:
    run = RunFolder(tmp_path)
    elastic(run, n1_ranks=("0", "0.1"), exit_code=0)
    (run.ranks / "1" / "rank.json").write_text(json.dumps({"rank": 1, "pid": 1, "node": "n1"}))
    assert supervisor_report(run)["exit_code"] == 143


def test_a_run_is_not_removed_while_another_node_records_into_it(tmp_path: Path) -> None:
    run = RunFolder(tmp_path / "run")
    node(run, "n1", silent_s=1)
    run.ranks.mkdir()
    run.run_json.write_text('{"command": ["train"], "started_wall_ns": 1}')
    with pytest.raises(UsageError, match="is still recording"):
        remove(run.path)
    (run.nodes / "n1" / "supervisor.json").write_text('{"exit_code": 0}')
    remove(run.path)
    assert not run.path.exists()


@pytest.mark.parametrize(("silent_s", "lost"), [(None, False), (SILENT_S - 1, False), (SILENT_S + 1, True)])
def test_only_silence_is_a_loss(silent_s: float | None, lost: bool) -> None:
    state = NodeState(name="n", ranks=(), exit_code=None, silent_s=silent_s)
    assert state.is_lost is lost and state.has("0") is (silent_s is not None and not lost)


def test_of_many_ranks_the_status_is_what_their_supervisors_told(tmp_path: Path) -> None:
    """No log is read, and no description of a rank."""
    run, most = RunFolder(tmp_path), run_report.MANY + 2
    (tmp_path / "run.json").write_text("{}")
    node(run, "n1", silent_s=1)
    told = {"moment": "7.3", "collectives": 31, "in_flight": 1, "log_bytes": 9, "payload_bytes": 0, "lost": ""}
    words = {3: "failed", 4: "raised", 5: "raised", 6: "parked"}  # 5 is gone
    progress = {str(number): {**told, "word": words.get(number, "")} for number in range(most)}
    (run.nodes / "n1.beat.json").write_text(json.dumps({"beat": 3, "gone": ["1", "5"], "progress": progress}))
    for number in range(most):
        (run.ranks / str(number)).mkdir(parents=True)
        (run.ranks / str(number) / "rank.json").write_text("damaged")
    states = run_report.rank_states(run, node_states(run))
    assert [state.state for state in states[:7]] == [
        *("running", "died", "running", "failed", "running", "failed", "parked")
    ]
    assert {(state.moment, state.collectives, state.in_flight, state.window) for state in states} == {
        ("7.3", 31, 1, "-")
    }
    assert states[0].node == "n1" and len(states) == most


def test_a_rank_of_which_nothing_is_in_run_hides_no_other(tmp_path: Path) -> None:
    """Its log is on its node, and RUN was full when its supervisor wanted to tell how far it came."""
    run = RunFolder(tmp_path / "run")
    (run.path / "nodes").mkdir(parents=True)
    (run.path / "run.json").write_text("{}")
    node(run, "n1", silent_s=1)
    about = json.loads((run.nodes / "n1" / "node.json").read_text())
    (run.nodes / "n1" / "node.json").write_text(json.dumps({**about, "local": str(tmp_path / "prismdbg-elsewhere")}))
    (run.nodes / "n1.beat.json").write_text('{"beat": 3}')
    write_training(run.ranks / "0")
    for number in ("0", "1"):
        (run.ranks / number).mkdir(parents=True, exist_ok=True)
        (run.ranks / number / "rank.json").write_text(json.dumps({"rank": int(number), "pid": 1 << 22, "node": "n1"}))
    first, second = run_report.rank_states(run, node_states(run))
    assert first.collectives > 0 and not first.lost
    assert (second.moment, second.state) == ("?", "running")
    assert second.lost == "how far it came is not in RUN: its log is on node n1"
    assert "rank 1: how far it came is not in RUN" in "\n".join(run_report.report(run.path))


@pytest.mark.parametrize("progress", [[], {"0": {}}, {"0": {"moment": "x"}}])
def test_damaged_progress_is_one_error(progress: object, tmp_path: Path) -> None:
    run = RunFolder(tmp_path)
    node(run, "n1", silent_s=1)
    (run.nodes / "n1.beat.json").write_text(json.dumps({"beat": 3, "progress": progress}))
    with pytest.raises(CapsuleError, match="progress"):
        last_beat(NodeFolder(run.nodes / "n1"))


@pytest.mark.parametrize("name", ["n2/supervisor.json", "n2/node.json", "n2.beat.json"])
def test_a_damaged_file_of_a_node_is_named_and_hides_nothing_else(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """An empty one, say, after a power cut. The node may go on: it began with the last restart as far as one knows."""
    run = RunFolder(tmp_path / "run")
    for number, owner in enumerate(("n1", "n2")):
        node(run, owner, silent_s=1, capsules=[owner])
        write_training(run.ranks / str(number))
        (run.ranks / str(number) / "rank.json").write_text(json.dumps({"rank": number, "pid": 1 << 22, "node": owner}))
    (run.nodes / ".restart.1").mkdir()
    for owner in ("n1", "n2"):
        (run.nodes / owner / "node.json").write_text('{"restart": 1}')
    run.run_json.write_text("{}")
    (run.nodes / name).write_bytes(b"")
    n1, n2 = node_states(run)
    assert (n1.damage, n2.damage) == ("", f"{run.nodes / name} is not JSON: Expecting value: line 1 column 1 (char 0)")
    assert (n1.state, n2.state, n2.ranks) == ("running", "running", ("1",))
    assert "n1" in supervisor_report(run)["capsules"]
    assert main.run(["status", str(run.path)]) == 0
    shown = capsys.readouterr()
    assert len(shown.out.splitlines()) == 3 and f"node n2 (rank 1): running; {n2.damage}" in shown.err
    assert main.run(["status", str(run.path), "--json"]) == 0
    assert [one.get("damage") for one in json.loads(capsys.readouterr().out)["nodes"]] == [None, n2.damage]
    assert main.run(["why", str(run.path)]) == 0
    assert f"node n2: {n2.damage}" in capsys.readouterr().out


def test_a_node_whose_report_is_damaged_is_not_accused_of_its_silence(tmp_path: Path) -> None:
    run = RunFolder(tmp_path)
    node(run, "n1", silent_s=SILENT_S + 40)
    (run.nodes / "n1" / "supervisor.json").write_bytes(b"")
    (state,) = node_states(run)
    assert not state.is_lost and state.text.startswith("node n1: over; its exit code is unknown; "), state.text
    assert "exit_code" not in supervisor_report(run)


def test_a_damaged_report_of_the_only_supervisor_is_a_problem(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = RunFolder(tmp_path / "run")
    write_training(run.ranks / "0")
    (run.ranks / "0" / "rank.json").write_text('{"rank": 0, "pid": 4194304}')
    run.run_json.write_text("{}")
    run.supervisor_json.write_bytes(b"")
    assert main.run(["status", str(run.path)]) == 0
    shown = capsys.readouterr()
    assert len(shown.out.splitlines()) == 2 and f"problem: {run.supervisor_json} is not JSON" in shown.err
