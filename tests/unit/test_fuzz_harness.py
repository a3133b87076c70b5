"""The fuzzer sees what it is there for: each defect that it looks for is put in, and is found."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from prismdbg.capsule import layout
from prismdbg.capsule.exact_file import Known
from prismdbg.cli import main
from prismdbg.runtime.environment import InstalledFile, of_files
from prismdbg.runtime.visible import Visible
from tests.fuzz import harness
from tests.fuzz.commands import nothing_runs
from tests.fuzz.corpus import Corpus, make_corpus
from tests.fuzz.harness import Fuzzer
from tests.fuzz.inputs import reseal
from tests.fuzz.places import Shown
from tests.fuzz.traps import entry_of


def failures(folder: Path) -> list[str]:
    """Of one input."""
    tally = [*Fuzzer(folder / "f", 1).run(range(1))][-1]
    return [failure.text for failure in tally.failures]


def test_nothing_is_found_where_nothing_is_wrong(tmp_path: Path) -> None:
    assert not failures(tmp_path)


def raised() -> None:
    raise ValueError("not foreseen")


@pytest.mark.parametrize(
    ("does", "found"),
    [
        (raised, "ValueError: not foreseen"),
        (lambda: os.write(os.open("/dev/shm/../shm/fuzz-outside", os.O_WRONLY | os.O_CREAT), b"x"), "opened to write"),
        (lambda: os.mkdir("/proc/nothing"), "FileNotFoundError"),  # noqa: PTH102
        (lambda: os.system("true"), "os.system"),
        (lambda: print("bait-f3b1c0de"), "prints what lies outside"),
        (lambda: 1, "exit code 1"),
        (lambda: 4, "exit code 4"),
        (lambda: 3, "exit 3 without an error"),
        (lambda: os._exit(0), "its process ended"),
        (lambda: time.sleep(60), "more than 1 s"),
        (lambda: b"x" * (100 << 20) == b"", "MiB of memory"),
        (lambda: b"x" * (1 << 30) == b"", "MemoryError"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_a_command_must_not_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, does: Callable[[], object], found: str
) -> None:
    def run(_: object) -> int:
        code = does()
        return code if type(code) is int else 0

    monkeypatch.setattr(harness, "BOUND_WALL_S", 1.0)
    monkeypatch.setattr(harness, "BOUND_BYTES", 64 << 20)
    monkeypatch.setattr(main, "run", run)
    try:
        assert any(found in text for text in failures(tmp_path))
    finally:
        Path("/dev/shm/fuzz-outside").unlink(missing_ok=True)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    return make_corpus(tmp_path_factory.mktemp("corpus") / "f")


@pytest.fixture
def notes(corpus: Corpus, tmp_path: Path) -> Iterator[Path]:
    """Somebody's file that no capsule may be shown; nothing is run."""
    with nothing_runs(tmp_path, corpus.traps.bait):
        yield corpus.traps.bait / "notes.txt"


def listing(corpus: Corpus, *files: Path) -> Path:
    """A capsule whose list of installed files has these, too."""
    capsule = corpus.bases["start"]
    more = [found for path in files if (found := InstalledFile.at(str(path))) is not None]
    environment = of_files([*corpus.traps.installed, *more])
    (capsule / layout.ENVIRONMENT).write_text(json.dumps(environment.to_json()))
    reseal(capsule)
    return capsule


def test_a_capsule_that_lists_it_is_refused(corpus: Corpus, notes: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for runtime in ("docker", "local"):
        assert main.run(["replay", str(listing(corpus, notes)), "--runtime", runtime]) == 3
        assert "lists" in capsys.readouterr().err
        assert main.run(["replay", str(listing(corpus)), "--runtime", runtime]) == 4
        assert "the fuzzer runs nothing" in capsys.readouterr().err


def test_what_a_container_would_show_is_seen(corpus: Corpus, notes: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("prismdbg.runtime.docker.image.require_installed", lambda _: None)
    monkeypatch.setattr("prismdbg.runtime.visible.not_installed", lambda path: AssertionError(path))
    monkeypatch.setattr("prismdbg.runtime.visible._is_installed", lambda _: True)
    for command in (["build"], ["replay", "--runtime", "docker"], ["debug", "--runtime", "docker"]):
        with pytest.raises(Shown, match="a layer of the container image"):
            main.run([*command, str(listing(corpus, notes))])


def test_what_namespaces_would_show_is_seen(corpus: Corpus, notes: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def shows(path: Path) -> None:
        status = path.stat()
        there = {str(path): Known(os.path.realpath(path), status.st_dev, status.st_ino)}
        seen = Visible(folders=there) if path.is_dir() else Visible(files=there)
        monkeypatch.setattr("prismdbg.runtime.local_runtime.visible", lambda *_, **__: seen)
        with pytest.raises(Shown):
            main.run(["replay", str(listing(corpus)), "--runtime", "local"])

    for path in (notes, notes.parent, notes.parents[2], Path("/proc/self/root"), notes.with_name("fifo")):
        shows(path)


def test_credentials_that_a_capsule_knows_are_seen(
    corpus: Corpus, notes: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    capsule = listing(corpus)
    index = capsule / layout.FILES_INDEX
    before = index.read_text()
    entry = {**entry_of(str(notes.parent / ".ssh/id_rsa"), corpus.traps), "place": "bound"}
    index.write_text(json.dumps({"files": [*json.loads(before)["files"], entry]}))
    reseal(capsule)
    try:
        assert main.run(["replay", str(capsule), "--runtime", "local"]) == 3
        monkeypatch.setattr("prismdbg.capsule.files.is_credential", lambda _: False)
        with pytest.raises(Shown):
            main.run(["replay", str(capsule), "--runtime", "local"])
    finally:
        index.write_text(before)
        reseal(capsule)
