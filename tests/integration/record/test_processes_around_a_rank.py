"""Processes above and below a rank that have its environment, and what a rank does: they are none."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from chain import PARTS, prismdbg, recording
from jobs import forked, plain_environment, torchrun

pytestmark = pytest.mark.job


def test_a_process_that_writes_training_checkpoints_is_no_rank(tmp_path: Path) -> None:
    """It has the variables of its rank, and a process group with those of the other ranks. Up to the first save, a
    replay does what was recorded."""
    command = forked(PARTS / "saves_in_a_process.py", tmp_path / "saved", ranks=2)
    with recording(command, tmp_path, "--window", "all") as job:
        ended = job.end()
        assert ended.code == 0, ended.output[-3000:]
        assert (tmp_path / "saved" / ".metadata").exists()
        assert [folder.name for folder in job.run.rank_folders()] == ["0", "1"]
        (incident,) = job.supervisor["incidents"]
        assert (incident["kind"], incident["ranks"], incident["attempt"]) == ("nan", [1], 0), incident
        said = prismdbg("why", job.run.path)
        assert "rank 1 sent the first NaN" in said.out and "attempt" not in said.out, said.out
        assert ended.output.count("a process that rank 0 started communicates or trains: it is not recorded") == 1, (
            ended.output[-3000:]
        )
        (capsule,) = job.capsules
    replayed = prismdbg("replay", capsule, "--runtime", "local", "--until", "2.2")
    assert replayed.code == 0, replayed.err
    assert replayed.out.startswith("identical up to 2.2: 6 collectives compared"), replayed.out


def test_a_launcher_with_a_rank_in_its_environment_is_no_rank_when_it_raises(tmp_path: Path) -> None:
    """As in pods of Kubeflow's PyTorchJob: there RANK is the number of the pod."""
    command = torchrun(PARTS / "incidents.py", "oom", ranks=2)
    with recording(command, tmp_path, env=plain_environment(RANK="0", WORLD_SIZE="2", GOES_WRONG_AT="3")) as job:
        ended = job.end()
        assert ended.code == 1 and "ChildFailedError" in ended.output, ended.output[-3000:]
        assert [folder.name for folder in job.run.rank_folders()] == ["0", "1"]
        (incident,) = job.supervisor["incidents"]
        assert (incident["kind"], incident["ranks"]) == ("oom", [1]), incident
        said = prismdbg("why", job.run.path)
        assert "ChildFailedError" not in said.out and "rank 1" in said.out, said.out


@pytest.mark.parametrize(
    ("helper", "when", "options", "recorded"),
    [
        ("fails", "within", (), ["0", "1"]),
        ("fails", "after", (), ["0", "1"]),
        ("trains", "within", ("--ranks", "0"), ["0"]),
        ("evaluates", "within", (), ["0", "1"]),
        ("evaluates", "again", ("--ranks", "0"), ["0"]),
        ("fails", "detached", (), ["0", "1"]),
        ("trains", "detached", (), ["0", "1"]),
        ("trains", "before", (), ["0", "1"]),
    ],
)
def test_a_program_that_a_rank_starts_is_no_rank(
    helper: str, when: str, options: tuple[str, ...], recorded: list[str], tmp_path: Path
) -> None:
    """Neither when it raises, nor when it trains as rank 0 of its own and only that rank is to be recorded, nor when it
    is as large as the job."""
    command = forked(PARTS / "starts_helpers.py", tmp_path, helper, when, ranks=2)
    with recording(command, tmp_path, *options) as job:
        ended = job.end()
        helpers = 4 if helper == "evaluates" else 2
        assert ended.output.count("ValueError: the helper fails") == helpers, ended.output[-3000:]
        assert [folder.name for folder in job.run.rank_folders()] == recorded
        texts = {incident["text"] for incident in job.supervisor["incidents"]}
        assert texts == ({"RuntimeError: the training fails"} if "1" in recorded else set()), texts


def test_ranks_that_another_rank_starts_are_ranks(tmp_path: Path) -> None:
    with recording([sys.executable, str(PARTS / "starts_the_others.py"), "0"], tmp_path) as job:
        ended = job.end()
        assert ended.code == 0, ended.output[-3000:]
        assert [folder.name for folder in job.run.rank_folders()] == ["0", "1"]


def test_a_rank_that_starts_the_others_is_a_rank_when_it_raises(tmp_path: Path) -> None:
    """Before it has communicated itself."""
    with recording([sys.executable, str(PARTS / "starts_the_others.py"), "1"], tmp_path) as job:
        ended = job.end()
        assert ended.code == 1 and [folder.name for folder in job.run.rank_folders()] == ["0", "1"]
        (incident,) = job.supervisor["incidents"]
        assert (incident["text"], incident["ranks"]) == ("RuntimeError: rank 0 fails", [0]), incident


def test_a_training_below_a_rank_that_has_destroyed_its_group_is_recorded(tmp_path: Path) -> None:
    with recording(forked(PARTS / "preflight_then_trains.py", tmp_path / "met", ranks=2), tmp_path) as job:
        ended = job.end()
        assert ended.code == 0, ended.output[-3000:]
        assert [folder.name for folder in job.run.rank_folders()] == ["0", "0.1", "1", "1.1"]
