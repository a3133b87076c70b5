"""A plain process runs with the files of this machine: which of them are not the recorded ones."""

from __future__ import annotations

import shutil
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from capsules import MANIFEST, RANK
from tiny_log import write_training

from prismdbg.capsule import layout
from prismdbg.capsule.capsule_dir import Capsule, CapsuleWriter
from prismdbg.capsule.files import add_files
from prismdbg.cli import main
from prismdbg.cli.exit_codes import ExitCode
from prismdbg.cli.terminal import replay_script
from prismdbg.errors import RuntimeFailure
from prismdbg.jobs.replay.replay import ReplayRequest, unhidden
from prismdbg.jobs.replay.replay_plan import make_plan
from prismdbg.jobs.replay.source_overlay import edited_here, make_overlay
from prismdbg.runtime import plain_runtime
from prismdbg.runtime.plain_runtime import PlainRuntime
from prismdbg.runtime.rank_folder import RankFolder
from prismdbg.session.causes import ALL_HIDDEN, Unhidden, not_hidden

UNSEARCHED = Unhidden(unsearched=("/data",))


@pytest.fixture
def job(tmp_path: Path) -> Path:
    folder = tmp_path / "job"
    folder.mkdir()
    for name in ("train.py", "settings.py", "gone.py"):
        (folder / name).write_text("lr = 1")
    return folder


@pytest.fixture
def capsule(tmp_path: Path, job: Path) -> Capsule:
    with CapsuleWriter(tmp_path / "capsule") as writer:
        write_training(tmp_path / "log", 3, rank=0)
        writer.add_tree(layout.LOG, tmp_path / "log")
        writer.add_json(layout.RANK, RANK)
        add_files(writer, [str(path) for path in job.iterdir()])
        return writer.finish(MANIFEST)


def seen(runtime: str, capsule: Capsule, absent: tuple[str, ...] = ()) -> Unhidden:
    plan = SimpleNamespace(unhidden=UNSEARCHED, spec=SimpleNamespace(absent=absent))
    return unhidden(cast(Any, SimpleNamespace(name=runtime)), cast(Any, plan), capsule)


def test_files_that_are_as_they_were_are_the_recorded_ones(capsule: Capsule) -> None:
    assert seen("plain", capsule) == UNSEARCHED


def test_those_that_differ_are_named(capsule: Capsule, job: Path) -> None:
    (job / "train.py").write_text("lr = 2")
    (job / "settings.py").write_text("lr = 10")
    (job / "gone.py").unlink()
    found = seen("plain", capsule)
    assert sorted(found.differing) == [
        f"{job}/gone.py does not exist on this machine",
        f"{job}/settings.py has 7 bytes; at the capture it had 6",
        f"{job}/train.py has changed since the capture",
    ]
    first, *others = not_hidden(found)
    assert first.startswith("the replay runs with this machine's files, of which these differ from the recorded ones: ")
    assert all(name in first for name in found.differing) and len(others) == 1


def test_what_the_rank_made_later_is_there_already(capsule: Capsule, job: Path) -> None:
    younger, missing = job / "step9.pt", job / "step10.pt"
    younger.touch()
    found = seen("plain", capsule, (str(younger), str(missing)))
    assert found == UNSEARCHED._replace(younger=(str(younger),))
    assert not_hidden(found)[0].endswith(f"after the start moment: {younger}")


@pytest.mark.parametrize(("runtime", "expected"), [("local", UNSEARCHED), ("docker", ALL_HIDDEN)])
def test_elsewhere_the_captured_files_run(runtime: str, expected: Unhidden, capsule: Capsule, job: Path) -> None:
    (job / "train.py").write_text("lr = 2")
    assert seen(runtime, capsule, (str(job / "train.py"),)) == expected


@pytest.mark.parametrize("with_source", [False, True])
def test_a_commit_that_lacks_a_captured_file_is_judged(
    capsule: Capsule, job: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, with_source: bool
) -> None:
    """A later commit has added it. A replay that is no bisection needs it."""
    (job / "gone.py").unlink()
    (job / "train.py").write_text("lr = 2")
    started: list[Any] = []
    monkeypatch.setattr(plain_runtime, "start_process", lambda spec, *_: started.append(spec))
    as_recorded = ReplayRequest(capsule=capsule, runtime="plain", allow_writes=True)
    overlay = make_overlay(capsule, job) if with_source else None
    by_commit = replace(as_recorded, edited=edited_here(capsule), overlay=overlay)
    assert by_commit.replaced == (f"{job}/gone.py", f"{job}/train.py")
    for number, request in enumerate((by_commit, as_recorded)):
        session = tmp_path / f"session{number}"
        with closing(RankFolder(session / "rank")) as own:
            spec = make_plan(request, session, own).spec
        if request is as_recorded:
            with pytest.raises(RuntimeFailure, match=r"gone\.py does not exist on this machine"):
                PlainRuntime().start(spec)
        else:
            PlainRuntime().start(spec)
    (spec,) = started
    assert {file.target for file in spec.files if file.source} == {f"{job}/train.py", f"{job}/settings.py"}


@pytest.mark.parametrize("is_edited", [False, True])
def test_a_plain_bisection_of_another_folder_is_wrong_usage(
    capsule: Capsule, job: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], is_edited: bool
) -> None:
    """No commit there would ever run."""
    other = shutil.copytree(job, tmp_path / "other")
    if is_edited:
        (other / "train.py").write_text("lr = 2")
    line = ["replay", str(capsule.path), "--runtime", "plain", "--allow-writes", "--bisect", "--source", str(other)]
    assert main.run(line) == ExitCode.NO_VERDICT
    assert f"runs the files in {job}, not those in {other}" in capsys.readouterr().err


def test_a_plain_bisection_of_the_programs_folder_by_another_name(
    capsule: Capsule, job: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "link").symlink_to(job)
    asked: list[Any] = []
    monkeypatch.setattr(replay_script, "replay_scripted", lambda chosen: asked.append(chosen) or 0)
    line = ["replay", str(capsule.path), "--runtime", "plain", "--allow-writes", "--bisect"]
    assert main.run([*line, "--source", str(tmp_path / "link")]) == ExitCode.OK
    (chosen,) = asked
    assert chosen.request(capsule).edited == ()
    assert replace(chosen, bisect=False).request(capsule).edited is None
