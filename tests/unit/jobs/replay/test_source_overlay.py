"""Which of the user's files stand in for which captured ones."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from capsules import IMAGE, MANIFEST, make_capsule

from prismdbg.capsule.capsule_dir import Capsule
from prismdbg.cli.terminal.replay_script import say_overlay
from prismdbg.errors import UsageError
from prismdbg.jobs.replay import source_overlay
from prismdbg.jobs.replay.replay_plan import ReplayRequest
from prismdbg.jobs.replay.source_overlay import NothingMatches, edited_here, make_overlay
from prismdbg.runtime.spec import LaidFile

PROGRAM = {"/job/src/train.py": "old", "/job/src/lib/model.py": "model", "/data/words.txt": "words"}
RANK = {"argv": ["src/train.py"], "cwd": "/job"}


@pytest.fixture
def capsule(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Capsule:
    """One whose files are `PROGRAM`."""
    made = make_capsule(tmp_path / "capsule")
    monkeypatch.setattr(Capsule, "rank", lambda _: RANK)
    monkeypatch.setattr(source_overlay, "read_files", lambda _: tuple(_file(*item) for item in PROGRAM.items()))
    return made


def _file(path: str, text: str) -> Any:
    digest = hashlib.sha256(text.encode()).hexdigest()
    return source_overlay.RankFile(path=path, place=source_overlay.Place.INSIDE, size_bytes=len(text), sha256=digest)


def folder(base: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (base / name).parent.mkdir(parents=True, exist_ok=True)
        (base / name).write_text(text)
    return base


@pytest.mark.parametrize(
    ("files", "seen_as"),
    [
        ({"train.py": "new"}, "/job/src"),  # the program's folder
        ({"src/train.py": "new", "src/lib/model.py": "model"}, "/job"),  # the working directory
        ({"job/src/train.py": "new"}, None),  # nothing stands for the root
        ({"model.py": "new"}, "/job/src/lib"),  # a folder of its own
        ({"words.txt": "new"}, "/data"),
        ({"src/train.py": "new", "train.py": "other"}, "/job"),  # as many either way: the likelier
    ],
)
def test_the_folder_stands_for_one_the_program_knew(
    capsule: Capsule, tmp_path: Path, files: dict[str, str], seen_as: str | None
) -> None:
    mine = folder(tmp_path / "mine", files)
    if seen_as is None:
        with pytest.raises(NothingMatches, match="the relative path"):
            make_overlay(capsule, mine)
        return
    assert str(make_overlay(capsule, mine).seen_as) == seen_as


def test_what_becomes_of_each_file(capsule: Capsule, tmp_path: Path) -> None:
    mine = folder(
        tmp_path / "mine",
        {
            "src/train.py": "new",
            "src/lib/model.py": "model",
            "src/lib/fresh.py": "more",
            "README.md": "talk",
            ".git/HEAD": "ref",
            "src/__pycache__/train.pyc": "bytes",
            "venv/pyvenv.cfg": "",
            "venv/lib/x.py": "",
        },
    )
    (mine / "src" / "link.py").symlink_to(mine / "README.md")
    overlay = make_overlay(capsule, mine)
    assert overlay.replaced == {"/job/src/train.py": mine / "src/train.py"}
    assert overlay.added == {"/job/src/lib/fresh.py": mine / "src/lib/fresh.py"}
    assert (overlay.unchanged, overlay.unmatched) == (1, ("README.md",))


def test_it_is_laid_over_the_captured_files(capsule: Capsule, tmp_path: Path) -> None:
    mine = folder(tmp_path / "mine", {"src/train.py": "new", "src/more.py": "more"})
    (mine / "src/train.py").chmod(0o755)
    captured = tuple(LaidFile(source=Path("/capsule") / path.rsplit("/", 1)[-1], target=path) for path in PROGRAM)
    laid = {file.target: file for file in make_overlay(capsule, mine).over(captured)}
    assert set(laid) == {*PROGRAM, "/job/src/more.py"}
    assert (laid["/job/src/train.py"].source, laid["/job/src/train.py"].mode) == (mine / "src/train.py", 0o755)
    assert laid["/job/src/lib/model.py"].source == Path("/capsule/model.py")


def test_a_folder_as_it_was_captured_changes_nothing(capsule: Capsule, tmp_path: Path) -> None:
    assert make_overlay(capsule, folder(tmp_path / "mine", {"train.py": "old"})).is_empty


def test_a_relative_folder(capsule: Capsule, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mine = folder(tmp_path / "mine", {"train.py": "new"})
    monkeypatch.chdir(mine)
    assert make_overlay(capsule, Path()).replaced == {"/job/src/train.py": mine.resolve() / "train.py"}


def test_a_process_image_has_its_program_in_memory(tmp_path: Path) -> None:
    capsule = make_capsule(tmp_path / "capsule", IMAGE)
    with pytest.raises(
        UsageError, match=r"this one's first collective is 0\.1, and its memory contains the old program"
    ) as raised:
        make_overlay(capsule, tmp_path)
    assert "--origin start" in raised.value.hint


def test_files_of_this_machine_that_are_not_the_captured_ones(
    capsule: Capsule, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = folder(tmp_path / "here", {"same.py": "old", "edited.py": "new"})
    (here / "link.py").symlink_to("edited.py")
    bound = replace(_file(str(here / "edited.py"), "old"), place=source_overlay.Place.BOUND)
    names = ("same.py", "edited.py", "link.py", "gone.py")
    files = (*(_file(str(here / name), "old") for name in names), bound)
    monkeypatch.setattr(source_overlay, "read_files", lambda _: files)
    edited = tuple(str(here / name) for name in names[1:])
    assert edited_here(capsule) == edited
    as_recorded = ReplayRequest(capsule=capsule)
    assert (as_recorded.may_depart, as_recorded.replaced) == (False, None)
    by_commit = replace(as_recorded, edited=edited)
    assert (by_commit.may_depart, by_commit.replaced) == (True, edited)
    assert replace(as_recorded, edited=()).may_depart, "an import may not be captured"
    with pytest.raises(UsageError, match="its memory contains the old program"):
        edited_here(make_capsule(tmp_path / "image", IMAGE))


def test_no_folder_and_too_large_a_one(capsule: Capsule, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(NothingMatches, match="is not a folder"):
        make_overlay(capsule, tmp_path / "none")
    monkeypatch.setattr(source_overlay, "MAX_FILES", 1)
    with pytest.raises(UsageError, match="more than 1 files"):
        make_overlay(capsule, folder(tmp_path / "mine", {"train.py": "a", "b.py": "b"}))


def test_it_says_first_how_many_files_are_replaced(
    capsule: Capsule, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "train.py").write_text("new")
    say_overlay(make_overlay(capsule, tmp_path / "mine"))
    said = capsys.readouterr().err.splitlines()
    assert said[0].endswith("/mine replaces 1 of 1 captured file of /job/src")
    assert said[1] == "  replaced: /job/src/train.py"


def test_a_program_started_as_a_module_is_found_from_its_working_directory(
    tmp_path: Path,
) -> None:
    places = source_overlay.likely_places({"argv": ["-m"], "cwd": "/job"})
    assert [str(place) for place in places] == ["/job"]
    assert MANIFEST.origin.starts_program


def test_of_a_path_only_as_much_is_looked_at_as_a_file_of_the_users_is_deep() -> None:
    """Every folder of every path times every file of the user's would take minutes for a capsule's 100,000 paths."""

    class Looked(str):
        looked_at = 0

        def __getitem__(self, key: Any) -> str:
            Looked.looked_at += 1
            return super().__getitem__(key)

    own = [f"x{number}/b.py" for number in range(1000)]
    captured = [Looked("/a" * 100 + f"/x{number}/b.py") for number in range(1000)]
    captured += [Looked("/a" * 100 + "/other.py") for _ in range(1000)]
    assert source_overlay._matches_by_place(own, captured) == {"/a" * 100: 1000}
    assert Looked.looked_at < 8 * len(captured)
