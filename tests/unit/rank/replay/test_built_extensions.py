"""When a replayed program's extension is compiled, and when it is loaded as it was built."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
from waiting import wait_for

from prismdbg.rank.replay import built_extensions

Build = Callable[..., bool]


@pytest.fixture
def build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[list[str] | None], Build]:
    """Of a replay with these files replaced: whether it compiles the sources `near.cpp`, beside the library, and
    `far.cpp`."""
    near, far = tmp_path / "built" / "near.cpp", tmp_path / "far.cpp"
    near.parent.mkdir()
    for path in (near, far, near.with_name("own.so")):
        path.touch()
    fake = ModuleType("torch.utils.cpp_extension")
    compiled: list[str] = []

    def compile_it(name: str, sources: list[str], flags: list[str], build_directory: str, verbose: bool) -> None:
        compiled.append(name)

    vars(fake).update(LIB_EXT=".so", _write_ninja_file_and_build_library=compile_it)
    monkeypatch.setitem(sys.modules, fake.__name__, fake)

    def installed(replaced: list[str] | None) -> Build:
        built_extensions.install(replaced)

        def compiles(name: str = "own", far: str = "far.cpp") -> bool:
            compiled.clear()
            sources = [str(near), f"{tmp_path}/{far}"]
            fake._write_ninja_file_and_build_library(name, sources, [], build_directory=str(near.parent), verbose=False)
            return compiled == [name]

        return compiles

    return installed


def rewritten(path: Path) -> None:
    """By the program, after the replay has begun: a file's time is that of the clock's last tick."""
    now_ns = time.time_ns()

    def is_later() -> bool:
        path.write_text("")
        return path.stat().st_mtime_ns > now_ns

    wait_for(is_later, 5, "the clock's next tick")


def test_the_recorded_program_loads_what_was_built(build: Callable[[list[str] | None], Build], tmp_path: Path) -> None:
    compiles = build(None)
    rewritten(tmp_path / "built" / "near.cpp")  # it was built while the job ran: its text was not there before
    assert not compiles() and compiles("another")


@pytest.mark.parametrize(("edited", "is_compiled"), [([], False), (["train.py"], False), (["far.cpp"], True)])
def test_an_edited_program_compiles_what_was_edited(
    build: Callable[[list[str] | None], Build], tmp_path: Path, edited: list[str], is_compiled: bool
) -> None:
    assert build([str(tmp_path / name) for name in edited])() is is_compiled


def test_a_source_is_known_by_another_name(build: Callable[[list[str] | None], Build], tmp_path: Path) -> None:
    assert build([str(tmp_path / "far.cpp")])(far="built/../far.cpp")


def test_one_that_is_gone_is_torchs_error(build: Callable[[list[str] | None], Build]) -> None:
    assert build([])(far="gone.cpp")


def test_an_edited_text_is_compiled(build: Callable[[list[str] | None], Build], tmp_path: Path) -> None:
    compiles = build([str(tmp_path / "train.py")])
    rewritten(tmp_path / "built" / "near.cpp")
    assert compiles()


def test_a_torch_that_builds_otherwise_is_said(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    fake = ModuleType("torch.utils.cpp_extension")
    vars(fake).update(LIB_EXT=".so", _write_ninja_file_and_build_library=lambda specification: None)
    monkeypatch.setitem(sys.modules, fake.__name__, fake)
    built_extensions.install(None)
    assert (
        "compiled again: AttributeError('this torch builds them without build_directory, name" in capfd.readouterr().err
    )
