"""Ray Train runs the program's function, on a fake of the class that does it; tests/frameworks has the real one."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import pytest

from prismdbg.rank.frameworks import adapters
from prismdbg.rank.program import process_runs

(MODULE,) = adapters.ENDS


def construct_user_exception_with_traceback(error: BaseException, exclude_frames: int = 0) -> list[str]:
    return [frame.name for frame in traceback.extract_tb(error.__traceback__)[exclude_frames:]]


class ThreadRunner:
    """Runs it at once."""

    def __init__(self) -> None:
        self.kept: object = None

    def run(self, target: Callable[[], Any]) -> None:
        try:
            self.kept = target()
        except BaseException as error:
            module: Any = sys.modules[MODULE]
            self.kept = module.construct_user_exception_with_traceback(error, exclude_frames=1)


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[object]]:
    found: list[object] = []
    monkeypatch.setattr(process_runs, "_raised", [found.append])
    monkeypatch.setattr(process_runs, "_ended", [found.append])
    module: Any = ModuleType(MODULE)
    module.ThreadRunner = type("ThreadRunner", (ThreadRunner,), {"run": ThreadRunner.run})
    module.construct_user_exception_with_traceback = construct_user_exception_with_traceback
    monkeypatch.setitem(sys.modules, MODULE, module)
    adapters.imported(MODULE)
    yield found


def test_a_function_that_returns_ends_the_rank_well(told: list[object]) -> None:
    runner = sys.modules[MODULE].ThreadRunner()
    runner.run(lambda: "trained")
    assert (runner.kept, told) == ("trained", [0])


def test_what_it_raises_is_told_and_its_traceback_is_the_one_without_us(told: list[object]) -> None:
    def train() -> None:
        raise ValueError("bad batch")

    runner = sys.modules[MODULE].ThreadRunner()
    runner.run(train)
    error, code = told
    assert isinstance(error, ValueError) and code == 1 and runner.kept == ["train"]


def test_another_version_of_it_is_said(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setitem(sys.modules, MODULE, ModuleType(MODULE))
    adapters.imported(MODULE)
    assert f"how ranks end is not seen in {MODULE}" in capsys.readouterr().err
