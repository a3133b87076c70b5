"""What a capsule knows of names: the program's words only where all of its source is inside."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from capsules import MANIFEST, RANK
from disk_space import files_of_any_size

from prismdbg.capsule import layout
from prismdbg.capsule.capsule_dir import Capsule, CapsuleWriter
from prismdbg.capsule.files import add_files, content_path, read_files
from prismdbg.cli.terminal.replay_lines import Lines, replay_lines
from prismdbg.debugger import known_names as module
from prismdbg.debugger.known_names import DEEP, known_names
from prismdbg.errors import CapsuleError
from prismdbg.jobs.replay.replay import ReplayRequest
from prismdbg.model.collective import Frame, Group
from prismdbg.script.reader import read
from prismdbg.script.scripted import Scripted, run_scripted
from prismdbg.session.known import NOTHING, Known

TORCH = "/usr/lib/python3/dist-packages/torch/distributed/c10d.py"


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "train.py"
    path.write_text("import torch\nloss = model(batch)  # größe\n")
    return path


def known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, paths: list[Path], *lines: tuple[str, int]) -> Known:
    with CapsuleWriter(tmp_path / "capsule") as writer:
        add_files(writer, [str(path) for path in paths], small_bytes=1000)
        writer.add_json(layout.RANK, RANK)
        capsule: Capsule = writer.finish(MANIFEST)
    frames = (Frame(TORCH, 9, "all_reduce"), *(Frame(file, line, "main") for file, line in lines))
    call, send = (
        SimpleNamespace(frames=frames, is_p2p=False, record_id=0),
        SimpleNamespace(frames=(), is_p2p=True, root=1, record_id=1),
    )
    log: Any = SimpleNamespace(collectives=[call, send], groups={"7": Group(name="7", ranks=(0, 1), desc="mesh_tp")})
    monkeypatch.setattr(module, "read_log", lambda _: log)
    return known_names(capsule)


def test_lines_groups_and_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: Path) -> None:
    found = known(tmp_path, monkeypatch, [program], (str(program), 2))
    assert found.lines == {(str(program), 2)} and found.lines_of("train.py") == (2,)
    assert found.has_group("tp") and not found.has_group("dp")
    assert found.world_size == MANIFEST.world_size and found.peers == {1}
    assert found.words is not None and {"loss", "model", "größe"} <= found.words and "all_reduce" not in found.words


def test_lines_of_calls_before_the_start_moment_are_known_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: Path
) -> None:
    def call(number: int, line: int) -> Any:
        return SimpleNamespace(frames=(Frame(str(program), line, "main"),), is_p2p=False, record_id=number)

    with CapsuleWriter(tmp_path / "capsule") as writer:
        writer.add_json(layout.RANK, RANK | {"past_records": 2})
        capsule = writer.finish(MANIFEST)
    log: Any = SimpleNamespace(collectives=[call(0, 1), call(1, 2), call(2, 2), call(3, 3)], groups={})
    monkeypatch.setattr(module, "read_log", lambda _: log)
    found = known_names(capsule)
    assert found.earlier == {(str(program), 1)} and found.lines_of("train.py") == (2, 3)


def test_without_all_of_the_source_its_words_are_not_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: Path
) -> None:
    assert known(tmp_path, monkeypatch, [program], (str(program), 2), ("/job/other.py", 1)).words is None


@pytest.mark.parametrize("text", ["from helpers import *\n", "x = 1\n" * 1000])
def test_names_from_elsewhere_and_files_outside_are_not_known(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: Path
) -> None:
    program.write_text(text)
    assert known(tmp_path, monkeypatch, [program], (str(program), 1)).words is None


def test_of_a_stack_that_was_cut_no_line_is_missed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: Path
) -> None:
    found = known(tmp_path, monkeypatch, [program], *[(str(program), line) for line in range(DEEP)])
    assert found.lines == frozenset()


def test_a_capsule_that_cannot_be_read_knows_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def damaged(_: Path) -> Any:
        raise CapsuleError("record or fetch it again: the log is damaged")

    with CapsuleWriter(tmp_path / "capsule") as writer:
        writer.add_json(layout.RANK, RANK)
        capsule = writer.finish(MANIFEST)
    monkeypatch.setattr(module, "read_log", damaged)
    assert known_names(capsule) == NOTHING


def fifo(path: Path) -> None:
    os.mkfifo(path)


def link(path: Path) -> None:
    path.symlink_to("/dev/zero")


def hole(path: Path) -> None:
    with files_of_any_size(), path.open("wb") as file:
        file.truncate(1 << 40)


@pytest.mark.parametrize("replace", [fifo, link, hole])
def test_source_that_is_no_file_of_its_size_is_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: Path, replace: Callable[[Path], None]
) -> None:
    assert known(tmp_path, monkeypatch, [program], (str(program), 2)).words is not None
    capsule = Capsule.open(tmp_path / "capsule")
    content = content_path(capsule, read_files(capsule)[0])
    content.unlink()
    replace(content)
    assert known_names(capsule).words is None


def test_of_very_much_source_the_words_are_not_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: Path
) -> None:
    monkeypatch.setattr(module, "MOST_SOURCE_BYTES", 10)
    assert known(tmp_path, monkeypatch, [program], (str(program), 2)).words is None


def unsaid(_: str) -> None:
    return None


@pytest.mark.parametrize("replace", [fifo, link, hole])
@pytest.mark.parametrize("way", ["script", "lines"])
def test_a_replay_looks_at_no_source_of_a_capsule_with_other_files_than_it_lists(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: Path, replace: Callable[[Path], None], way: str
) -> None:
    known(tmp_path, monkeypatch, [program], (str(program), 2))
    capsule = Capsule.open(tmp_path / "capsule")
    content = content_path(capsule, read_files(capsule)[0])
    content.unlink()
    replace(content)
    request = ReplayRequest(capsule=capsule)
    with pytest.raises(CapsuleError, match=r"special file|expected"):
        if way == "lines":
            replay_lines(request, Lines("commands", ((1, "break if loss > 1"),)), bound_s=2.0, say=unsaid)
        else:
            script = read(b"forbid: [{name: no loss, on: collective, when: loss > 1}]", "checks.yaml")
            run_scripted(request, script, Scripted(), bound_s=2.0, say=unsaid)
