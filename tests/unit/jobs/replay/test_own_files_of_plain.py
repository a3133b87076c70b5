"""A plain process runs with the files of this machine: which of them are not the recorded ones."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from capsules import MANIFEST, RANK
from tiny_log import write_training

from prismdbg.capsule import layout
from prismdbg.capsule.capsule_dir import Capsule, CapsuleWriter
from prismdbg.capsule.files import add_files
from prismdbg.jobs.replay.replay import unhidden
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
