"""A job of one supervisor that Slurm requeues goes on in its RUN, as one of several nodes does."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from prismdbg.errors import UsageError
from prismdbg.jobs.record import record
from prismdbg.jobs.record.nodes import local_storage
from prismdbg.jobs.record.nodes.membership import BEFORE, enter
from prismdbg.jobs.record.nodes.shared_job import lone_job
from prismdbg.jobs.record.record import RecordRequest, home_of
from prismdbg.jobs.record.supervisor import Policy
from prismdbg.jobs.storage.job_nodes import is_shared, node_folders, node_states, supervisor_report
from prismdbg.jobs.storage.run_folder import RunFolder, read_json, write_json
from prismdbg.settings.rank_config import RankConfig


def request(run: Path, code: int, local: str = "") -> RecordRequest:
    command = (sys.executable, "-c", f"raise SystemExit({code})")
    return RecordRequest(output=run, command=command, local=local, policy=Policy())


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunFolder:
    """Its supervisor was killed together with the job, after an incident."""
    for name in ("SLURM_STEP_ID", "SLURM_STEP_NUM_TASKS", "PMI_SIZE", "OMPI_COMM_WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    monkeypatch.delenv("SLURM_RESTART_COUNT", raising=False)
    run = RunFolder(tmp_path.resolve() / "run")
    assert record.record(request(run.path, 3), print) == 3
    assert not is_shared(run), "a job that is started once has a RUN as ever"
    left = {**read_json(run.supervisor_json), "capsules": ["/a"]}
    write_json(run.supervisor_json, {name: left[name] for name in left if not name.endswith(("code", "wall_ns"))})
    (run.ranks / "0").mkdir()
    (run.ranks / "0" / "rank.json").write_text('{"rank": 0, "pid": 4194304}')
    return run


def again(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    monkeypatch.setenv("SLURM_RESTART_COUNT", str(count))


def test_it_goes_on_as_the_next_attempt(run: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    described = run.run_json.read_bytes()
    again(monkeypatch, 1)
    assert record.record(request(run.path, 5), print) == 5
    node = next(node for node in node_folders(run) if node.name != BEFORE)
    assert node.name.endswith(".restart1") and RankConfig.load(node.config).first_attempt == 1
    states = {state.name: state.state for state in node_states(run)}
    assert states == {BEFORE: "lost before the job was restarted", node.name: "ended with 5"}
    report = supervisor_report(run)
    assert (report["exit_code"], report["capsules"]) == (5, ["/a"]), "--keep counts them, too"
    assert run.run_json.read_bytes() == described

    (run.ranks / "0.4").mkdir()  # torchrun has restarted it meanwhile
    again(monkeypatch, 2)
    assert record.record(request(run.path, 0), print) == 0
    last = next(node for node in node_folders(run) if node.restart == 2)
    assert RankConfig.load(last.config).first_attempt == 5 and supervisor_report(run)["exit_code"] == 0


def test_parallel_steps_go_on_each_in_its_run_though_their_numbers_are_others(
    tmp_path: Path, run: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = [RunFolder(tmp_path.resolve() / name) for name in ("a", "b")]
    for count, steps in enumerate(("01", "10")):
        again(monkeypatch, count)
        for step, one in zip(steps, runs, strict=True):
            monkeypatch.setenv("SLURM_STEP_ID", step)
            assert record.record(request(one.path, 0), print) == 0
    assert [[node.restart for node in node_folders(one)] for one in runs] == [[0, 1], [0, 1]]


def test_a_start_that_was_killed_while_it_made_its_run_is_made_up_for(
    run: RunFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    half = RunFolder(tmp_path.resolve() / "half")
    with monkeypatch.context() as killing:
        killing.setattr(record, "describe_run", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            record.record(request(half.path, 0), print)
    assert not half.run_json.exists() and not is_shared(half)
    with pytest.raises(UsageError, match="already exists and is not empty"):
        record.record(request(half.path, 0), print)
    again(monkeypatch, 1)
    assert record.record(request(half.path, 5), print) == 5
    assert read_json(half.run_json)["job"] == "slurm 7" and supervisor_report(half)["exit_code"] == 5


def test_what_is_in_a_folder_that_is_no_run_is_left(run: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    run.run_json.unlink()
    again(monkeypatch, 1)
    with pytest.raises(UsageError, match="already exists and is not empty"):
        record.record(request(run.path, 0), print)


def test_a_folder_of_the_users_is_not_taken_for_a_run_because_of_a_name_in_it(
    run: RunFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As that of a model, which has its config.json first."""
    model = RunFolder(tmp_path.resolve() / "model")
    model.path.mkdir()
    model.config.write_text('{"hidden_size": 64}')
    again(monkeypatch, 1)
    with pytest.raises(UsageError, match="already exists and is not empty"):
        record.record(request(model.path, 0), print)
    assert [path.read_text() for path in model.path.iterdir()] == ['{"hidden_size": 64}']


@pytest.mark.parametrize("change", [{"SLURM_JOB_ID": "8"}, {"SLURM_RESTART_COUNT": "0"}])
def test_the_run_of_another_job_is_refused(
    change: dict[str, str], run: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    again(monkeypatch, 1)
    for name, value in change.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(UsageError, match="already exists and is not empty"):
        record.record(request(run.path, 0), print)
    assert not run.nodes.exists()


def test_its_ranks_write_where_they_wrote_before(run: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if RUN is on a file server: a job of one node keeps its logs there unless it is asked not to."""
    monkeypatch.setattr(local_storage, "is_local", lambda folder: folder != run.path)
    again(monkeypatch, 1)
    assert home_of(request(run.path, 0)) is None and home_of(request(run.path, 0, "/tmp")) == Path("/tmp")


def test_with_logs_on_the_node_it_goes_on_too(tmp_path: Path, run: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "local").mkdir()
    other = RunFolder(tmp_path.resolve() / "other")
    for count in (0, 1):
        again(monkeypatch, count)
        assert record.record(request(other.path, 0, str(tmp_path / "local")), print) == 0
    assert [node.restart for node in node_folders(other)] == [0, 1]
    assert json.loads((other.nodes / "job.json").read_text())["id"] == "slurm 7"


@pytest.mark.parametrize("count", [0, 1])
def test_the_same_command_again_is_no_second_node(
    count: int, tmp_path: Path, run: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor is one waited for that was killed, which has no exit code."""
    again(monkeypatch, count)
    (tmp_path / "local").mkdir()
    told = request(tmp_path / "other", 0, str(tmp_path / "local"))
    other = RunFolder(told.output.resolve())
    job = lone_job(os.environ)
    assert job is not None
    with enter(told.output, job, pytest.fail) as first:
        write_json(other.run_json, {"command": []})
        for _ in ("while it runs", "once it was killed"):
            with pytest.raises(UsageError, match="already exists and is not empty"):
                record.record(told, pytest.fail)
            first.heart.end()
    assert [node.name for node in node_folders(other)] == [first.node.name]


def test_a_run_that_this_start_has_made_is_not_gone_on_with(
    tmp_path: Path, run: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    fresh = RunFolder(tmp_path.resolve() / "fresh")
    again(monkeypatch, 1)
    assert record.record(request(fresh.path, 0), print) == 0
    with pytest.raises(UsageError, match="already exists and is not empty"):
        record.record(request(fresh.path, 0), print)
    assert not is_shared(fresh)
    again(monkeypatch, 2)
    assert record.record(request(fresh.path, 0), print) == 0
