"""What waits for the import of a module."""

from __future__ import annotations

import importlib
import importlib.util
import sys
import zipfile
from pathlib import Path

import pytest

from prismdbg.rank.program.imports import AfterImport


@pytest.fixture
def imported(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """The names whose import was seen, each by two that wait."""
    found: list[str] = []
    for name, text in (("fake_outer", "import fake_inner"), ("fake_inner", ""), ("fake_broken", "1 / 0")):
        (tmp_path / f"{name}.py").write_text(text)
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.syspath_prepend(tmp_path)
    waiting = [AfterImport(["fake_outer", "fake_inner", "fake_broken"], found.append, "not active") for _ in range(2)]
    monkeypatch.setattr(sys, "meta_path", [*waiting, *sys.meta_path])
    return found


def test_a_program_that_first_asks_whether_a_module_is_there(imported: list[str]) -> None:
    """As transformers does with torch: a job whose first line imports it would not be recorded."""
    for _ in range(2):
        assert importlib.util.find_spec("fake_inner") is not None
    importlib.import_module("fake_outer")
    assert imported == ["fake_inner"] * 2 + ["fake_outer"] * 2
    for name in ("fake_inner", "fake_outer"):
        sys.modules.pop(name)
        importlib.import_module(name)
    assert len(imported) == 4, "only the first import is waited for"


def test_an_import_that_failed_may_be_tried_again(imported: list[str], tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError):
        importlib.import_module("fake_broken")
    assert not imported
    (tmp_path / "fake_broken.py").write_text("there = True")
    importlib.import_module("fake_broken")
    assert imported == ["fake_broken"] * 2


def test_a_loader_of_many_modules_tells_of_those_that_are_waited_for(
    imported: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That of a zip file is one for all in it."""
    with zipfile.ZipFile(tmp_path / "both.zip", "w") as file:
        file.writestr("fake_watched.py", "")
        file.writestr("fake_other.py", "")
    monkeypatch.syspath_prepend(tmp_path / "both.zip")
    monkeypatch.setattr(
        sys, "meta_path", [AfterImport(["fake_watched"], imported.append, "not active"), *sys.meta_path]
    )
    for _ in range(sys.getrecursionlimit()):
        importlib.util.find_spec("fake_watched")
    importlib.import_module("fake_other")
    assert not imported
    importlib.import_module("fake_watched")
    assert imported == ["fake_watched"]
    for name in ("fake_other", "fake_watched"):
        monkeypatch.delitem(sys.modules, name)
