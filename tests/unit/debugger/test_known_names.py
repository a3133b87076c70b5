"""What a capsule knows of names: the program's words only where all of its source is inside."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from capsules import MANIFEST, RANK

from prismdbg.capsule import layout
from prismdbg.capsule.capsule_dir import Capsule, CapsuleWriter
from prismdbg.capsule.files import add_files
from prismdbg.debugger import known_names as module
from prismdbg.debugger.known_names import DEEP, known_names
from prismdbg.errors import CapsuleError
from prismdbg.model.collective import Frame, Group
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
