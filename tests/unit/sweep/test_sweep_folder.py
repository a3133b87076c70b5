"""What a sweep finds again in its folder."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from prismdbg.errors import UsageError
from prismdbg.sweep.folder import SweepFolder
from prismdbg.sweep.request import SweepRequest, Trial
from prismdbg.sweep.result import Result, State
from prismdbg.sweep.space import Space
from prismdbg.sweep.sweep import _last_error

SPACE = Space.parse(4, "pp,dp", ["pp=1,2"])
COMMAND = ("python", "train.py", "--pp", "{pp}", "--api-key", "sk-very-secret-0123456789")


def request(path: Path, **more: object) -> SweepRequest:
    return replace(SweepRequest(output=path / "s", space=SPACE, command=COMMAND), **more)  # type: ignore[arg-type]


def trial(folder: SweepFolder) -> Trial:
    return folder.trial(next(SPACE.configurations()))


DONE = Result(name="pp=1", values={"pp": "1"}, state=State.DONE, middle_ns=5, iteration_ns=(5,))


def test_what_ran_is_found_again_and_what_was_cut_off_is_not(tmp_path: Path) -> None:
    folder = SweepFolder.open(request(tmp_path))
    first = trial(folder)
    folder.begin(first)
    (first.output.parent / "run").mkdir()
    assert not folder.has_run(first)
    folder.begin(first)
    assert not (first.output.parent / "run").exists()
    folder.ran(first)
    folder.keep(first, DONE)
    again = SweepFolder.open(request(tmp_path, jobs=7, space=Space.parse(4, "pp,dp", ["pp=1,2,4"])))
    assert again.has_run(first) and again.result(first) == DONE


def test_another_cluster_or_tokens_need_no_other_run(tmp_path: Path) -> None:
    cluster = tmp_path / "c.yaml"
    cluster.write_text("one")
    folder = SweepFolder.open(request(tmp_path, cluster=cluster))
    folder.begin(trial(folder))
    folder.ran(trial(folder))
    folder.keep(trial(folder), DONE)
    assert folder.result(trial(folder)) == DONE
    cluster.write_text("two")
    for other in (folder, SweepFolder.open(request(tmp_path)), SweepFolder.open(request(tmp_path, tokens="1"))):
        assert other.has_run(trial(other)) and other.result(trial(other)) is None


@pytest.mark.parametrize(
    "more", [{"command": ("python", "{pp}")}, {"steps": 9}, {"memory": True}, {"classes": ("pp",)}]
)
def test_a_folder_of_another_sweep_is_refused(tmp_path: Path, more: dict[str, object]) -> None:
    SweepFolder.open(request(tmp_path))
    with pytest.raises(UsageError, match="contains a sweep of another command") as raised:
        SweepFolder.open(request(tmp_path, **more))
    assert "another folder with -o" in raised.value.hint


def test_a_folder_of_somebody_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "s").mkdir()
    (tmp_path / "s" / "thesis.tex").write_text("mine")
    with pytest.raises(UsageError):
        SweepFolder.open(request(tmp_path))
    assert [path.name for path in (tmp_path / "s").iterdir()] == ["thesis.tex"]


def test_secrets_of_the_command_are_not_written(tmp_path: Path) -> None:
    SweepFolder.open(request(tmp_path))
    assert "very-secret" not in (tmp_path / "s" / "sweep.json").read_text()


@pytest.mark.parametrize(
    ("printed", "said"),
    [
        ("prismdbg: rank 0\nValueError: no\nerror: rank 0 failed\n  try: x\n", "rank 0 failed: ValueError: no"),
        ("prismdbg: rank 0\nerror: rank 0 failed\n", "rank 0 failed"),
        ("Segmentation fault\n", "Segmentation fault"),
        ("", ""),
    ],
)  # fmt: skip
def test_a_failure_is_said_in_one_line(tmp_path: Path, printed: str, said: str) -> None:
    (tmp_path / "out").write_text(printed)
    assert _last_error(tmp_path / "out") == said
