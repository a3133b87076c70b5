"""What the ranks of a recorded job are told."""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from prismdbg.errors import UsageError
from prismdbg.jobs import injection
from prismdbg.jobs.record import record
from prismdbg.jobs.record.incidents import parse_triggers
from prismdbg.jobs.record.nodes.same_command import RECENT_S
from prismdbg.jobs.record.record import RecordRequest
from prismdbg.jobs.record.supervisor import Policy
from prismdbg.jobs.storage.run_folder import RunFolder, write_json
from prismdbg.rank.c10d.store import prefer_one_that_can_be_saved
from prismdbg.settings.rank_config import RankConfig


@pytest.fixture(autouse=True)
def sockets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(record, "make_socket_dir", lambda: tmp_path / "sockets")
    yield


@pytest.mark.parametrize(
    ("triggers", "looked_for"), [("none", False), ("exception", False), ("nan", True), ("exception,nan", True)]
)
def test_nan_is_looked_for_only_where_it_is_a_trigger(triggers: str, looked_for: bool, tmp_path: Path) -> None:
    policy = Policy(triggers=parse_triggers(triggers))
    run = record.prepare(RecordRequest(output=tmp_path / "run", command=("true",), policy=policy))
    assert RankConfig.load(run.config).nan_check is looked_for


def test_a_secret_of_the_command_line_is_not_kept(tmp_path: Path) -> None:
    command = ("python", "train.py", "--api-key", "hunter2")
    run = record.prepare(RecordRequest(output=tmp_path / "run", command=command, policy=Policy()))
    assert "hunter2" not in run.run_json.read_text()


def started(output: Path, *command: str) -> str:
    """The hint where it is refused."""
    try:
        record.prepare(RecordRequest(output=output, command=command, policy=Policy()))
    except UsageError as error:
        return error.hint
    return ""


@pytest.mark.parametrize(
    ("exit_code", "ended_s", "is_same"),
    [(None, 0.0, True), (1, 0.0, True), (0, RECENT_S + 60, False)],
    ids=["goes on", "has just ended", "ended"],
)
def test_the_second_node_of_an_unknown_launcher_is_told_of_the_job_id(
    exit_code: int | None, ended_s: float, is_same: bool, tmp_path: Path
) -> None:
    """ended_s: how long ago."""
    run = tmp_path / "run"
    ended = {"exit_code": exit_code, "ended_wall_ns": time.time_ns() - int(ended_s * 1e9)}
    assert started(run, "bash", "launch.sh", "--rank", "0", "10.0.0.1", "--password", "one") == ""
    write_json(RunFolder(run).supervisor_json, {} if exit_code is None else ended)
    again = started(run, "bash", "launch.sh", "--rank", "1", "10.0.0.2", "--password", "two")
    assert "choose a new folder" in again and ("the same --job-id ID" in again) is is_same
    assert "--job-id" not in started(run, "bash", "other.sh", "--rank", "1", "10.0.0.2", "--password", "two")
    RunFolder(run).run_json.write_text("{")
    assert "--job-id" not in started(run, "bash", "launch.sh", "--rank", "1", "10.0.0.2", "--password", "two")


@pytest.mark.parametrize(
    ("window", "own", "seed"), [(0, None, None), (-1, "random", "random"), (8, "7", "7"), (0, "7", "7")]
)
def test_the_order_of_sets_is_left_as_it_was(
    window: int, own: str | None, seed: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One seed for all ranks hides that they go through a set in different orders."""
    assert seed_of_a_job(window, own, tmp_path, monkeypatch) == str(seed)


@pytest.mark.parametrize("window", [8, -1])
def test_what_may_be_replayed_from_its_start_has_a_known_seed(
    window: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert seed_of_a_job(window, None, tmp_path, monkeypatch).isdecimal()


def seed_of_a_job(window: int, own: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.delenv("PYTHONHASHSEED", raising=False)
    if own is not None:
        monkeypatch.setenv("PYTHONHASHSEED", own)
    code = f"import os; open({str(tmp_path / 'seed')!r}, 'w').write(str(os.environ.get('PYTHONHASHSEED')))"
    request = RecordRequest(
        output=tmp_path / "run", command=(sys.executable, "-c", code), window_steps=window, policy=Policy()
    )
    assert record.record(request, print) == 0
    return (tmp_path / "seed").read_text()


@pytest.mark.parametrize(
    ("program", "code"), [("exit(0)", 0), ("exit(7)", 7), ("import os; os.kill(os.getpid(), 9)", 137)]
)
def test_record_ends_with_the_code_of_the_job(program: str, code: int, tmp_path: Path) -> None:
    command = (sys.executable, "-c", program)
    assert record.record(RecordRequest(output=tmp_path / "run", command=command, policy=Policy()), print) == code


@pytest.mark.parametrize(
    ("given", "set_to"),
    [
        ({"WORLD_SIZE": "63"}, "0"),
        ({"WORLD_SIZE": "64"}, None),
        ({"WORLD_SIZE": "8", "TORCHELASTIC_RUN_ID": "none"}, None),
        ({"WORLD_SIZE": "8", "USE_LIBUV": "1"}, "1"),
        ({"WORLD_SIZE": "many"}, None),
    ],
)
def test_a_rank_that_serves_its_store_can_be_saved(
    given: dict[str, str], set_to: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("WORLD_SIZE", "TORCHELASTIC_RUN_ID", "USE_LIBUV"):
        monkeypatch.delenv(name, raising=False)
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    prefer_one_that_can_be_saved()
    assert os.environ.get("USE_LIBUV") == set_to


@pytest.mark.parametrize("was_there", [False, True])
def test_a_run_that_cannot_be_written_is_an_error_and_leaves_nothing(
    was_there: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a full file system, or with `ulimit -f`."""

    def full(folder: Path) -> None:
        folder.mkdir()
        raise shutil.Error([("a", "b", "[Errno 27] File too large: 'b'")])

    monkeypatch.setattr(record, "make_inject_folder", full)
    (tmp_path / "sockets").mkdir()
    if was_there:
        (tmp_path / "run").mkdir()
    with pytest.raises(UsageError, match=r"cannot be created: .*File too large"):
        record.prepare(RecordRequest(output=tmp_path / "run", command=("true",), policy=Policy()))
    assert not (tmp_path / "sockets").exists()
    assert [path.name for path in tmp_path.rglob("*")] == (["run"] if was_there else [])


@pytest.mark.parametrize("killed_at", ["model", injection.RANK_HALF[-1]])
def test_a_start_that_was_killed_while_it_made_its_run_is_made_up_for_by_the_next(
    killed_at: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a file server the copy of prismdbg takes seconds; a scheduler that requeues the job kills it anywhere."""
    request = RecordRequest(output=tmp_path / "run", command=("true",), job_id="one", policy=Policy())

    def copied(source: Path, target: Path) -> None:
        if source.name == killed_at:
            raise KeyboardInterrupt
        target.mkdir()

    with monkeypatch.context() as killing:
        killing.setattr(shutil, "copytree", copied)
        with pytest.raises(KeyboardInterrupt):
            record.record(request, print)
    monkeypatch.setenv("SLURM_RESTART_COUNT", "1")
    assert record.record(request, print) == 0
    inject = tmp_path / "run" / "inject"
    assert {path.name for path in inject.iterdir()} == {"prismdbg", "sitecustomize.py"}
    assert {path.name for path in (inject / "prismdbg").iterdir()} == set(injection.RANK_HALF)
    assert (inject / "prismdbg" / "rank" / "recording").is_dir(), "and each part is whole"


def test_what_supervisors_ask_for_again_and_again_is_there_before_others_join(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file server's client may remember for a minute that a folder was not there."""
    described = record.describe_run
    there: set[str] = set()

    def seen(run: RunFolder, *about: Any) -> None:
        there.update(path.name for path in run.path.iterdir())
        described(run, *about)

    monkeypatch.setattr(record, "describe_run", seen)
    request = RecordRequest(output=tmp_path / "run", command=("true",), job_id="one", policy=Policy())
    assert record.record(request, print) == 0
    assert {"requests", "incidents", "ranks"} <= there and "run.json" not in there
