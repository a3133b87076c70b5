"""A file of a capsule that is missing, no plain file, or a hole without end: every command ends soon, with one error.

The manifest still says what was there. A command that does not read the file may do its work.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import NoReturn

import pytest
from disk_space import files_of_any_size

from prismdbg.capsule import layout
from prismdbg.capsule.manifest import Origin
from prismdbg.cli.exit_codes import ExitCode
from tests.fuzz.commands import nothing_runs
from tests.fuzz.corpus import make_corpus
from tests.fuzz.harness import Said, judged
from tests.fuzz.inputs import reseal

BOUND_WALL_S = 60  # of a command, however busy the machine is; `judged` bounds its processor time and memory
TERABYTE = 1 << 40
EXTRA = f"{layout.CHECKPOINT}/mm-7.img"
NO_GRAPH = ("graph", "unpack")  # one rank that crashed gives none, and a folder is not packed
# These look at every file before they do anything.
READ_ALL = (("verify",), ("inspect", "--secrets"), ("pack", "--share"), ("pack", "--share", "--redact"))
READ_PART = {layout.MEMORY: "memory", layout.TELEMETRY: "telemetry"}  # a figure from half of it would be wrong


def pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def link(path: Path) -> None:
    path.unlink()
    path.symlink_to("/etc/passwd")


def hole(path: Path) -> None:
    with files_of_any_size():
        os.truncate(path, TERABYTE)


def missing(path: Path) -> None:
    path.unlink()


DAMAGES = (pipe, folder, link, hole, missing)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_corpus(tmp_path_factory.mktemp("altered") / "corpus").bases["start"].parent


@pytest.fixture
def capsule(corpus: Path, tmp_path: Path, origin: Origin) -> Iterator[Path]:
    """Of each kind of file one; of a checkpoint what `prismdbg` reads without CRIU."""
    path = tmp_path / "input" / "capsule"
    shutil.copytree(corpus / ("state" if origin is Origin.STATE else "start"), path)
    if origin is Origin.IMAGE:
        (path / layout.CHECKPOINT).mkdir(exist_ok=True)
        (path / layout.CHECKPOINT / "pages-1.img").write_bytes(b"memory" * 1000)
        manifest = json.loads((path / layout.MANIFEST).read_text())
        manifest |= {"origin": Origin.IMAGE, "contains_raw_memory": True}
        (path / layout.MANIFEST).write_text(json.dumps(manifest))
        reseal(path)
    with nothing_runs(tmp_path):
        yield path


def lines_of(capsule: Path, out: Path) -> list[list[str]]:
    path, file = str(capsule), str(out / "f")
    return [
        ["verify", path], ["inspect", "--secrets", path], ["pack", "--share", path, "-o", f"{file}.1"],
        ["pack", "--share", "--redact", path, "-o", f"{file}.2"], ["pack", "--share-anyway", path, "-o", f"{file}.3"],
        ["pack", path, "-o", f"{file}.4"], ["inspect", "--files", path], ["list", str(capsule.parent)],
        ["why", path], ["open", path], ["memory", path], ["telemetry", path], ["diff", path, path],
        ["graph", "build", path, "--mesh", "dp=2", "--alike", "dp", "--no-replay", "-o", f"{file}.npz"],
        ["report", path, "-o", f"{file}.html"], ["list", path], ["unpack", path, "-o", f"{file}.5"],
        ["export", path, "--format", "perfetto", "-o", f"{file}.pftrace"],
        ["export", path, "--format", "flight-recorder", "-o", f"{file}.dumps"],
        ["replay", path, "--runtime", "local"], ["build", path], ["debug", path, "--runtime", "local"],
    ]  # fmt: skip


def too_slow(_number: int, _frame: FrameType | None) -> NoReturn:
    raise TimeoutError(f"more than {BOUND_WALL_S} s")


@contextmanager
def bounded() -> Iterator[None]:
    before = signal.signal(signal.SIGALRM, too_slow)
    signal.alarm(BOUND_WALL_S)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def what_is_wrong(capsule: Path, out: Path, name: str) -> Iterator[str]:
    """With the file `name` damaged: also a command that reads it and does not say so."""
    is_longer = (capsule / name).is_file() and not (capsule / name).is_symlink()  # by a hole, as while it was written
    reader = None if is_longer else READ_PART.get(name.rpartition("/")[0])
    is_capsule = (capsule / layout.MANIFEST).is_file()
    for line in lines_of(capsule, out):
        out.mkdir(exist_ok=True)
        with bounded():
            said = judged(Said(number=0), line, [])
        words = tuple(word for word in line if not word.startswith(("/", "-o")))
        if said.text:
            yield f"{' '.join(words)}: {said.text}"
        if said.code == ExitCode.USAGE and is_capsule and words[0] not in NO_GRAPH:
            yield f"{' '.join(words)}: says that it was called in a wrong way"
        if (words in READ_ALL or words == (reader,)) and said.code != ExitCode.BAD_CAPSULE:
            yield f"{' '.join(words)}: exit code {said.code}"
        shutil.rmtree(out)


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
@pytest.mark.parametrize("origin", [Origin.IMAGE, Origin.STATE])
def test_each_file_of_a_capsule(capsule: Path, tmp_path: Path, origin: Origin, damage: Callable[[Path], None]) -> None:
    names = [layout.MANIFEST, *json.loads((capsule / layout.MANIFEST).read_text())["files"]]
    if origin is Origin.STATE:  # the others are those of the other capsule
        names = [name for name in names if name.startswith(f"{layout.STATE}/")]
    wrong = []
    for name in names:
        kept = shutil.move(shutil.copy2(capsule / name, tmp_path / "copy"), tmp_path / "kept")
        damage(capsule / name)
        wrong += [f"{name}: {text}" for text in what_is_wrong(capsule, tmp_path / "out", name)]
        if (capsule / name).is_dir():
            (capsule / name).rmdir()
        (capsule / name).unlink(missing_ok=True)
        shutil.move(kept, capsule / name)
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("damage", [pipe, folder, link, hole], ids=lambda damage: damage.__name__)
@pytest.mark.parametrize("origin", [Origin.IMAGE])
def test_a_file_that_the_manifest_does_not_name(
    capsule: Path, tmp_path: Path, origin: Origin, damage: Callable[[Path], None]
) -> None:
    (capsule / EXTRA).write_bytes(b"x")
    damage(capsule / EXTRA)
    assert not [*what_is_wrong(capsule, tmp_path / "out", EXTRA)]


@pytest.mark.parametrize("origin", [Origin.IMAGE])
def test_a_hole_that_the_manifest_names_with_its_size(capsule: Path, tmp_path: Path, origin: Origin) -> None:
    """Nobody would come to the end of it to compare its hash."""
    for name in (f"{layout.CHECKPOINT}/pages-1.img", f"{layout.LOG}/events.00001.seg", layout.RANK_PACKAGE):
        before = (capsule / layout.MANIFEST).read_bytes(), (capsule / name).read_bytes()
        hole(capsule / name)
        reseal(capsule)
        assert not [*what_is_wrong(capsule, tmp_path / "out", EXTRA)]
        (capsule / layout.MANIFEST).write_bytes(before[0])
        (capsule / name).write_bytes(before[1])
