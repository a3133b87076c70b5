"""What a sweep finds again in its folder."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from prismdbg.errors import UsageError
from prismdbg.sweep.folder import SweepFolder
from prismdbg.sweep.request import How, SweepRequest, Trial
from prismdbg.sweep.result import Result, State
from prismdbg.sweep.space import Space
from prismdbg.sweep.stored import keep_comparison, read_sweep
from prismdbg.sweep.sweep import sweep
from prismdbg.sweep.workers.trial_group import TrialGroup, last_error

SPACE = Space.parse(4, "pp,dp", ["pp=1,2"])
COMMAND = ("python", "train.py", "--pp", "{pp}", "--api-key", "sk-very-secret-0123456789")


def request(path: Path, **more: object) -> SweepRequest:
    return replace(SweepRequest(output=path / "s", space=SPACE, command=COMMAND), **more)  # type: ignore[arg-type]


def opened(asked: SweepRequest) -> SweepFolder:
    with SweepFolder.opened(asked) as folder:
        return folder


def trial(folder: SweepFolder) -> Trial:
    return folder.trial(next(SPACE.configurations()))


DONE = Result(name="pp=1", values={"pp": "1"}, state=State.DONE, middle_ns=5, iteration_ns=(5,))


def test_what_ran_is_found_again_and_what_was_cut_off_is_not(tmp_path: Path) -> None:
    folder = opened(request(tmp_path))
    first = trial(folder)
    folder.begin(first)
    (first.output.parent / "run").mkdir()
    assert not folder.has_run(first)
    folder.begin(first)
    assert not (first.output.parent / "run").exists()
    folder.ran(first)
    folder.keep(first, DONE)
    again = opened(request(tmp_path, jobs=7, space=Space.parse(4, "pp,dp", ["pp=1,2,4"])))
    assert again.has_run(first) and again.result(first) == DONE


def test_another_cluster_or_tokens_need_no_other_run(tmp_path: Path) -> None:
    cluster = tmp_path / "c.yaml"
    cluster.write_text("one")
    folder = opened(request(tmp_path, cluster=cluster))
    folder.begin(trial(folder))
    folder.ran(trial(folder))
    folder.keep(trial(folder), DONE)
    assert folder.result(trial(folder)) == DONE
    cluster.write_text("two")
    for other in (folder, opened(request(tmp_path)), opened(request(tmp_path, tokens="1"))):
        assert other.has_run(trial(other)) and other.result(trial(other)) is None


def test_while_a_sweep_goes_on_its_folder_shows_no_time_of_another_cluster(tmp_path: Path) -> None:
    cluster = tmp_path / "c.yaml"
    cluster.write_text("one")
    asked = request(tmp_path, cluster=cluster, space=Space.parse(4, "pp,dp", ["pp=1,2,4"]))
    folder = opened(asked)
    first, second, third = map(folder.trial, asked.space.configurations())
    results = [replace(DONE, name=each.configuration.name) for each in (first, second, third)]
    for each, result in zip((first, second, third), results, strict=True):
        folder.begin(each)
        folder.ran(each)
        folder.keep(each, result)
    keep_comparison(asked.output, results, 0)
    (second.output.parent / "result.json").write_text("{")
    opened(request(tmp_path, cluster=cluster))
    assert [each.name for each in read_sweep(asked.output).results] == ["pp=1", "pp=4"], "what is damaged, too"
    cluster.write_text("two")
    again = opened(request(tmp_path, cluster=cluster))
    again.keep(first, replace(DONE, middle_ns=9))
    now = read_sweep(asked.output)
    assert [(each.name, each.middle_ns) for each in now.results] == [("pp=1", 9)] and now.unfinished == ("pp=2", "pp=4")


def test_the_folder_has_a_copy_of_the_cluster_that_its_times_rest_on(tmp_path: Path) -> None:
    cluster = tmp_path / "c.yaml"
    cluster.write_text("one")
    opened(request(tmp_path))
    assert read_sweep(tmp_path / "s").cluster is None
    opened(request(tmp_path, cluster=cluster))
    cluster.write_text("two")
    kept = read_sweep(tmp_path / "s").cluster
    assert kept == tmp_path / "s" / "cluster.yaml" and kept.read_text() == "one"
    opened(request(tmp_path, cluster=kept))
    assert kept.read_text() == "one"
    opened(request(tmp_path))
    assert read_sweep(tmp_path / "s").cluster is None, "its times rest on assumed figures now"


@pytest.mark.parametrize(
    "more", [{"command": ("python", "{pp}")}, {"steps": 9}, {"memory": True}, {"classes": ("pp",)}]
)
def test_a_folder_of_another_sweep_is_refused(tmp_path: Path, more: dict[str, object]) -> None:
    opened(request(tmp_path))
    with pytest.raises(UsageError, match="contains a sweep of another command") as raised:
        opened(request(tmp_path, **more))
    assert "another folder with -o" in raised.value.hint


def test_two_sweeps_do_not_run_in_one_folder(tmp_path: Path) -> None:
    with SweepFolder.opened(request(tmp_path)), pytest.raises(UsageError, match="another sweep runs in"):
        opened(request(tmp_path))
    opened(request(tmp_path))


@pytest.mark.parametrize("command", [COMMAND, ("python", "-m", "train", "{pp}", "--config=train.py")])
def test_a_program_that_was_changed_is_another_sweep(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text("lr = 1")
    opened(request(tmp_path, command=command))
    opened(request(tmp_path, command=command))
    Path("train.py").write_text("lr = 2")
    with pytest.raises(UsageError, match="of an older program"):
        opened(request(tmp_path, command=command))


def test_what_the_program_writes_makes_no_other_sweep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    asked = request(tmp_path, command=("python", "-m", "train", "{pp}", "--out=metrics.json"))
    opened(asked)
    Path("metrics.json").write_text("{}")
    opened(asked)


def test_a_file_that_several_configurations_write_is_no_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor is it where it was there before."""
    monkeypatch.chdir(tmp_path)
    space = Space.parse(4, "pp,dp", ["pp=1,2,4", "mbs=1"])
    asked = request(tmp_path, space=space, command=("python", "-m", "train", "{pp}", "--log=log_{mbs}.json"))
    folder = opened(asked)
    trials = [folder.trial(one) for one in space.configurations()]
    for each in trials:
        folder.begin(each)
        Path("log_1.json").write_text(each.configuration.name)
        folder.ran(each)
    assert [opened(asked).has_run(each) for each in trials] == [True, True, True]


def test_a_configuration_whose_program_was_changed_while_it_ran_runs_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("train_1.py").write_text("lr = 1")
    folder = opened(request(tmp_path, command=("python", "train_{pp}.py")))
    first = trial(folder)
    folder.begin(first)
    Path("train_1.py").write_text("lr = 2")
    folder.ran(first)
    assert folder.is_complete("pp=1") and not folder.has_run(first)


@pytest.mark.parametrize("named", ["train_{pp}.py", "--config=train_{pp}.py"])
def test_a_configuration_whose_own_file_was_changed_runs_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, named: str
) -> None:
    """What the program itself writes is no change."""
    monkeypatch.chdir(tmp_path)
    for name in ("train_1.py", "train_2.py"):
        Path(name).write_text("lr = 1")
    asked = request(tmp_path, command=("python", named, "{folder}/a.json", "--out=said_{pp}.json"))
    folder = opened(asked)
    trials = [folder.trial(one) for one in SPACE.configurations()]
    for each in trials:
        folder.begin(each)
        Path(f"said_{each.configuration.values['pp']}.json").write_text("{}")
        folder.ran(each)
        (each.folder / "a.json").write_text("{}")
    again = opened(asked)
    assert [again.has_run(each) for each in trials] == [True, True]
    Path("train_1.py").write_text("lr = 2")
    assert [opened(asked).has_run(each) for each in trials] == [False, True]


def test_a_folder_of_somebody_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "s").mkdir()
    (tmp_path / "s" / "thesis.tex").write_text("mine")
    with pytest.raises(UsageError):
        opened(request(tmp_path))
    assert [path.name for path in (tmp_path / "s").iterdir()] == ["thesis.tex"]


def test_secrets_of_the_command_are_not_written(tmp_path: Path) -> None:
    opened(request(tmp_path))
    assert "very-secret" not in (tmp_path / "s" / "sweep.json").read_text()


@pytest.mark.parametrize(
    ("printed", "said"),
    [
        ("prismdbg: rank 0\nValueError: no\nerror: rank 0 failed\n  try: x\n", "rank 0 failed: ValueError: no"),
        ("prismdbg: rank 0\nerror: rank 0 failed\n", "rank 0 failed"),
        ("Segmentation fault\n", "Segmentation fault"),
        ("exitcode: 1\n=====\nprismdbg: rank 0\nerror: the job failed\n", "the job failed: exitcode: 1"),
        ("", ""),
    ],
)  # fmt: skip
def test_a_failure_is_said_in_one_line(tmp_path: Path, printed: str, said: str) -> None:
    (tmp_path / "out").write_text(printed)
    assert last_error(tmp_path / "out") == said


def test_only_the_end_of_what_was_printed_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has any size."""
    (tmp_path / "out").write_text("error: not the last one\n" + "x" * 5000 + "\nSegmentation fault\n")
    monkeypatch.delattr(Path, "read_bytes")
    assert last_error(tmp_path / "out") == "Segmentation fault"


@pytest.mark.parametrize(("how", "launcher"), [(How.EMULATE, ()), (How.RECORD, ("-m", "torch.distributed.run"))])
def test_a_program_that_does_not_exist_is_one_error_before_anything_runs(
    tmp_path: Path, how: How, launcher: tuple[str, ...]
) -> None:
    command = (sys.executable, *launcher, str(tmp_path / "train.py"), "--pp", "{pp}")
    with pytest.raises(UsageError, match=f"no such file or directory: {tmp_path}/train.py"):
        sweep(request(tmp_path, command=command, how=how), print)
    assert not (tmp_path / "s").exists()


def test_jobs_that_fail_for_one_reason_say_it_once(tmp_path: Path) -> None:
    command = (sys.executable, "-c", "raise SystemExit('no GPU')", "{pp}")
    asked = request(tmp_path, command=command, space=Space.parse(4, "pp,dp", ["pp=1,2"]), how=How.RECORD)
    said: list[str] = []
    with SweepFolder.opened(asked) as folder:
        why = TrialGroup(folder, 1, asked.bound_s, said.append).run([folder.trial(o) for o in SPACE.configurations()])
    assert set(why.values()) == {why["pp=1"]} and "no GPU" in why["pp=1"]
    failed = [line for line in said if " failed after " in line]
    assert why["pp=1"] in failed[0] and "1 to go: as" not in failed[0]
    assert ": as pp=1 did; all it printed: " in failed[1] and "no GPU" not in failed[1]


def test_a_job_of_which_nothing_can_be_worked_out_runs_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its process ends well, and no rank was recorded."""
    ran: list[list[str]] = []

    class Workers:
        def __init__(self, folder: SweepFolder, _say: object) -> None:
            self.folder = folder

        def run(self, trials: Sequence[Trial]) -> dict[str, str]:
            ran.append([each.configuration.name for each in trials])
            for each in trials:
                self.folder.begin(each)
                (each.run / "ranks").mkdir(parents=True)
                (each.run / "run.json").write_text("{}")
                self.folder.ran(each)
            return {}

    monkeypatch.setattr("prismdbg.sweep.sweep.workers", Workers)
    asked = request(tmp_path, command=(sys.executable, "-c", "pass", "{pp}"), how=How.RECORD)
    for times in (1, 2):
        results = sweep(asked, print)
        assert {(result.state, result.why) for result in results} == {(State.FAILED, "no rank was recorded")}
        assert ran == [["pp=1", "pp=2"]] * times
        assert (asked.output / "trials" / "pp=2" / "run" / "run.json").is_file(), "to look at"


def test_a_job_that_takes_too_long_is_ended_and_the_others_go_on(tmp_path: Path) -> None:
    """Two real jobs of one process each, of which the first never ends."""
    program = "import sys, time; time.sleep(float(sys.argv[1]))"
    command = (sys.executable, "-c", program, "{seconds}")
    space = Space.parse(1, "dp", ["seconds=600,0"])
    asked = request(tmp_path, command=command, space=space, how=How.RECORD, bound_s=20.0)
    said: list[str] = []
    with SweepFolder.opened(asked) as folder:
        trials = [folder.trial(one) for one in space.configurations()]
        why = TrialGroup(folder, 2, asked.bound_s, said.append).run(trials)
        assert [folder.has_run(each) for each in trials] == [False, True]
    assert why == {"seconds=600": "it did not end within 20 seconds (--timeout)"}
    assert [line for line in said if line.startswith("seconds=600 failed after")]
