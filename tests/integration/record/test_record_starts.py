"""Every way in which a job starts and a process ends: `prismdbg record` keeps out of the way, and the log is right."""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path

import pytest
from jobs import EXAMPLES, Recorded, forked, plain_environment, record, recorded_by_command_line, replay, run, torchrun

from prismdbg.capsule.log.format import StepSource
from prismdbg.model.collective import State

pytestmark = pytest.mark.job

PROGRAMS = Path(__file__).parents[1] / "programs"
KILLED = ("killed", 128 + signal.SIGKILL, None, None)


def python(program: str, *arguments: object) -> list[str]:
    return [sys.executable, str(PROGRAMS / program), *map(str, arguments)]


def names(recorded: Recorded, rank: int = 0) -> list[str]:
    return [collective.name for collective in recorded.log(rank).collectives]


def lost(recorded: Recorded, rank: int = 0) -> list[object]:
    return [note.data for note in recorded.log(rank).notes if note.kind == "lost"]


def test_a_plain_python_process(tmp_path: Path) -> None:
    bare = run(python("alone.py", tmp_path / "met"), tmp_path / "bare.txt")
    (tmp_path / "met").unlink(missing_ok=True)
    recorded = recorded_by_command_line(python("alone.py", tmp_path / "met"), tmp_path / "run")
    assert (bare.code, recorded.ended.code) == (0, 0), recorded.ended.output
    assert recorded.ended.lines("result") == bare.lines("result") != []
    assert names(recorded) == ["all_reduce"] * 3
    assert [str(c.moment) for c in recorded.log(0).collectives] == ["0.1", "1.1", "2.1"]
    assert [mark.step for mark in recorded.log(0).steps] == [1, 2, 3]


def test_a_process_without_a_group(tmp_path: Path) -> None:
    recorded = recorded_by_command_line(python("alone.py"), tmp_path / "run")
    assert recorded.ended.code == 0, recorded.ended.output
    assert recorded.ranks == [0]
    assert [mark.step for mark in recorded.log(0).steps] == [1, 2, 3]


def test_a_process_without_torch_leaves_no_log(tmp_path: Path) -> None:
    recorded = recorded_by_command_line([sys.executable, "-c", "print('result')"], tmp_path / "run")
    assert recorded.ended.code == 0
    assert recorded.ended.lines("result")
    assert recorded.ranks == []


@pytest.mark.parametrize("launcher", ["torchrun", "python -m torch.distributed.run"])
def test_both_launchers(launcher: str, tmp_path: Path) -> None:
    command = torchrun(PROGRAMS / "loaders.py", "fork", ranks=2)
    if launcher == "torchrun":
        command = [str(Path(sys.executable).with_name("torchrun")), *command[3:]]
    recorded = recorded_by_command_line(command, tmp_path / "run")
    assert recorded.ended.code == 0, recorded.ended.output
    assert recorded.ranks == [0, 1]
    for rank in (0, 1):
        facts = json.loads((recorded.folder(rank) / "rank.json").read_text())
        assert (facts["rank"], facts["world_size"]) == (rank, 2)
        assert (lost(recorded, rank), recorded.log(rank).steps) == ([], [])
        assert names(recorded, rank) == [*["all_reduce"] * 4, "barrier"]


def test_a_recorded_rank_and_a_replayed_one_may_start_workers(tmp_path: Path) -> None:
    """They inherit its environment: neither are they recorded or replayed, nor is the end of a forked child the rank's.
    Those that are spawned import torch themselves."""
    for program, argument in (("loaders.py", "spawn"), ("forks.py", tmp_path / "met")):
        recorded = record(forked(PROGRAMS / program, argument, ranks=1), tmp_path / program, native=True)
        assert ([folder.name for folder in recorded.run.rank_folders()], lost(recorded)) == (["0"], [])
        replayed = replay(recorded.folder(0))
        assert (replayed.code, replayed.divergence, replayed.synthesized) == (0, None, []), replayed.output
        assert (replayed.tally["compared"], replayed.tally["missing"]) == (len(recorded.log(0).collectives), 0)
        assert lines(replayed.output) == lines(recorded.ended.output) != []


def lines(output: str) -> list[str]:
    return [line for line in output.splitlines() if line.startswith(("result", "child"))]


def test_ranks_made_by_spawn(tmp_path: Path) -> None:
    recorded = recorded_by_command_line(python("spawned.py", tmp_path / "met"), tmp_path / "run")
    assert recorded.ended.code == 0, recorded.ended.output
    assert recorded.ended.lines("result") == ["result 0 12.0", "result 1 12.0"]
    assert [folder.name for folder in recorded.run.rank_folders()] == ["0", "1"]
    assert names(recorded, 0) == names(recorded, 1) == [*["all_reduce"] * 3, "barrier"]
    assert [c.fingerprint for c in recorded.log(0).collectives][1:3] == [
        c.fingerprint for c in recorded.log(1).collectives
    ][1:3]


@pytest.mark.parametrize("options", [(), ("--python-kernels",), ("--memory",)])
def test_ranks_forked_by_a_launcher_that_imported_torch(tmp_path: Path, options: tuple[str, ...]) -> None:
    job = forked(EXAMPLES / "train_ddp.py", "--size", "tiny", "--steps", 3, ranks=2)
    recorded = recorded_by_command_line(job, tmp_path / "run", *options)
    assert recorded.ended.code == 0, recorded.ended.output
    assert [folder.name for folder in recorded.run.rank_folders()] == ["0", "1"]
    assert names(recorded, 0) == names(recorded, 1) != []
    assert [note.data["code"] for note in recorded.log(1).notes if note.kind == "exit"] == [0]
    assert [note.data["text"] for note in recorded.log(0).notes if note.kind == "memory"] == (
        ["memory is not traced: a forked child; only a process that starts its own program is traced"]
        if "--memory" in options
        else []
    )


def test_a_group_that_is_freed_at_once_waits_for_no_callback_of_the_recorder(tmp_path: Path) -> None:
    recorded = recorded_by_command_line(python("freed_groups.py", 200), tmp_path / "run", "--python-kernels")
    assert recorded.ended.code == 0, recorded.ended.output
    assert recorded.ended.lines("result") == ["result"]


def test_a_forked_child_stays_out_of_the_log(tmp_path: Path) -> None:
    recorded = recorded_by_command_line(python("forks.py", tmp_path / "met"), tmp_path / "run")
    assert recorded.ended.code == 0, recorded.ended.output
    assert recorded.ended.lines("child") == ["child -2.0", "child ended 7"]
    assert recorded.ended.lines("result") == ["result -2.0"]
    assert [folder.name for folder in recorded.run.rank_folders()] == ["0"]
    log = recorded.log(0)
    assert [str(c.moment) for c in log.collectives] == ["0.1", "1.1"]
    assert [mark.step for mark in log.steps] == [1, 2]
    assert [note.kind for note in log.notes if note.kind in ("lost", "incident")] == []
    assert [note.data["code"] for note in log.notes if note.kind == "exit"] == [0]


def test_a_scaler_that_skips_a_step_counts_it(tmp_path: Path) -> None:
    recorded = recorded_by_command_line(python("scaled.py"), tmp_path / "run")
    assert recorded.ended.code == 0, recorded.ended.output
    (result,) = recorded.ended.lines("result")
    assert float(result.split()[1]) == pytest.approx(0.7)
    normal, skipped = StepSource.OPTIMIZER, StepSource.SKIPPED_BY_SCALER
    marks = [(mark.step, mark.source) for mark in recorded.log(0).steps]
    assert marks == [(1, normal), (2, skipped), (3, normal), (4, normal)]


@pytest.mark.parametrize("options", [(), ("--python-kernels",)])
def test_no_thread_of_the_recorder_takes_a_signal_of_the_program(options: tuple[str, ...], tmp_path: Path) -> None:
    recorded = recorded_by_command_line(python("sigwait.py"), tmp_path / "run", *options)
    assert recorded.ended.code == 0, recorded.ended.output
    assert recorded.ended.lines("result") == [f"result {int(signal.SIGUSR1)}"]
    assert [mark.step for mark in recorded.log(0).steps] == [1, 2]


def test_steps_marked_by_hand(tmp_path: Path) -> None:
    recorded = recorded_by_command_line(python("marked.py", tmp_path / "met"), tmp_path / "run")
    assert recorded.ended.code == 0, recorded.ended.output
    log = recorded.log(0)
    assert [(mark.step, mark.source) for mark in log.steps] == [(100, StepSource.MANUAL), (200, StepSource.MANUAL)]
    assert [str(c.moment) for c in log.collectives] == ["100.1", "100.2", "200.1", "200.2"]


def test_the_users_own_sitecustomize_and_path(tmp_path: Path) -> None:
    """What ours shadows still runs; nothing of our environment becomes importable; ours is not in the user's path."""
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    (theirs / "sitecustomize.py").write_text("import builtins; builtins.mark = __name__ + ' of theirs'\n")
    (theirs / "company.py").write_text("name = 'company'\n")
    script = tmp_path / "script.py"
    script.write_text(
        "import company, sitecustomize, sys, torch\n"
        "print('result', mark, company.name, [p for p in sys.path if 'site-packages' in p and 'inject' in p])\n"
        "optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1.0); optimizer.step()\n"
    )
    environment = plain_environment(PYTHONPATH=str(theirs))
    bare = run([sys.executable, str(script)], tmp_path / "bare.txt", env=environment)
    recorded = recorded_by_command_line([sys.executable, str(script)], tmp_path / "run", env=environment)
    assert (bare.code, recorded.ended.code) == (0, 0), recorded.ended.output
    assert recorded.ended.lines("result") == bare.lines("result") == ["result sitecustomize of theirs company []"]
    facts = json.loads((recorded.folder(0) / "rank.json").read_text())
    assert facts["environment"]["PYTHONPATH"] == str(theirs)
    assert "PRISMDBG_CONFIG" not in facts["environment"]


def test_only_the_ranks_asked_for(tmp_path: Path) -> None:
    command = forked(PROGRAMS / "loaders.py", "fork", ranks=2)
    recorded = recorded_by_command_line(command, tmp_path / "run", "--ranks", "1")
    assert recorded.ended.code == 0, recorded.ended.output
    assert len(recorded.ended.lines("result")) == 2 and recorded.ranks == [1]


@pytest.mark.parametrize(
    ("ending", "code", "incident", "last"),
    [
        ("return", 0, None, "exit"),
        ("sys.exit", 5, None, "exit"),
        ("exception", 1, "exception", "exit"),
        ("out of memory", 1, "oom", "exit"),
        ("in a thread", 0, "exception", "exit"),
        ("interrupted", 128 + signal.SIGINT, None, "exit"),
        ("os._exit", 3, None, None),
        KILLED,
        ("terminated", 128 + signal.SIGTERM, None, None),
        ("abort", 128 + signal.SIGABRT, None, None),
    ],
)
def test_the_log_is_readable_whatever_ends_the_process(
    ending: str, code: int, incident: str | None, last: str | None, tmp_path: Path
) -> None:
    ended_well(ending, code, incident, last, [], tmp_path)


@pytest.mark.parametrize(("ending", "code", "incident", "last"), [("exception", 1, "exception", "exit"), KILLED])
def test_the_log_of_the_python_kernels_is_readable(
    ending: str, code: int, incident: str | None, last: str | None, tmp_path: Path
) -> None:
    ended_well(ending, code, incident, last, ["--python-kernels"], tmp_path)


def ended_well(
    ending: str, code: int, incident: str | None, last: str | None, options: list[str], tmp_path: Path
) -> None:
    options = ["--window", "all", *options]
    command = python("ends.py", ending, tmp_path / "met")
    recorded = recorded_by_command_line(command, tmp_path / "run", *options)
    assert recorded.ended.code == code, recorded.ended.output
    assert recorded.ended.lines("result") == ["result 4.0"]
    log = recorded.log(0)
    assert [(c.name, c.state, c.payload is not None) for c in log.collectives] == [
        ("all_reduce", State.COMPLETED, True)
    ] * 3
    assert [note.data["incident"] for note in log.notes if note.kind == "incident"] == ([incident] if incident else [])
    assert [note.kind for note in log.notes if note.kind == "exit"] == ([last] if last else [])
    assert [note.data["code"] for note in log.notes if note.kind == "exit"] == ([code] if last else [])
    assert json.loads(recorded.run.supervisor_json.read_text())["exit_code"] in (code, 128 - code)


@pytest.mark.parametrize("native", [True, False])
def test_a_program_that_ends_its_world_and_begins_another(native: bool, tmp_path: Path) -> None:
    """torch gives the names of the first world's groups to those of the second, which are other groups."""
    for name in ("bare", "recorded"):
        (tmp_path / name).mkdir()
    bare = run(torchrun(PROGRAMS / "begins_again.py", tmp_path / "bare", ranks=3), tmp_path / "bare.txt")
    command = torchrun(PROGRAMS / "begins_again.py", tmp_path / "recorded", ranks=3)
    recorded = record(command, tmp_path / "run", native=native)
    assert (bare.code, recorded.ended.code) == (0, 0), recorded.ended.output
    assert sorted(recorded.ended.lines("result")) == sorted(bare.lines("result")) != []
    calls = [["0", "1", "1", "0~2"], ["0", "1", "1", "0~2", "1~2", "1~2"], ["0", "0~2", "1~2", "1~2"]]
    members = {"0": (0, 1, 2), "1": (0, 1), "0~2": (0, 1, 2), "1~2": (1, 2)}
    for rank, issued in enumerate(calls):
        log = recorded.log(rank)
        assert [c.group for c in log.collectives] == issued
        assert [c.identity.seq for c in log.collectives] == [issued[:n].count(name) for n, name in enumerate(issued)]
        assert {name: group.ranks for name, group in log.groups.items()} == {name: members[name] for name in issued}
        assert lost(recorded, rank) == []
    replayed = replay(recorded.folder(1))
    assert (replayed.code, replayed.divergence, replayed.synthesized) == (0, None, []), replayed
    assert set(replayed.output.splitlines()) & set(bare.lines("result")), replayed.output
