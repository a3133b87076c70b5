"""What a rank says on stderr never harms the program: not where it is said, and not where that fails."""

from __future__ import annotations

import ast
import errno
import importlib
import io
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from prismdbg.jobs.injection import PACKAGE
from prismdbg.rank.frameworks import registration
from prismdbg.rank.program.imports import AfterImport
from prismdbg.rank.program.stderr import say

ONLY_HERE = {
    "program/stderr.py": "it is what all others call, and suppresses what the stream raises",
    "inject/sitecustomize.py": "it says that there is no such file, and suppresses that, too",
}


class Failing(io.TextIOBase):
    """What every write to it raises: the disk is full, or the reader of a pipe is gone."""

    def __init__(self, number: int) -> None:
        self._number = number

    def write(self, text: str) -> int:
        raise OSError(self._number, os.strerror(self._number))


def full() -> Failing:
    return Failing(errno.ENOSPC)


def unread() -> Failing:
    return Failing(errno.EPIPE)


def closed() -> io.StringIO:
    stream = io.StringIO()
    stream.close()
    return stream


class Own:
    """A program may put anything there."""


def writes(path: Path) -> Iterator[str]:
    """Where a module writes to a stream of the process without `say`."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "print":
            yield f"print in line {node.lineno}"
        if isinstance(node, ast.Attribute) and ast.unparse(node) in ("sys.stderr", "sys.stdout"):
            yield f"{ast.unparse(node)} in line {node.lineno}"


def test_nothing_in_a_rank_prints_by_itself() -> None:
    rank = PACKAGE / "rank"
    found = {path.relative_to(rank).as_posix(): [*writes(path)] for path in rank.rglob("*.py")}
    assert {name for name, lines in found.items() if lines} == set(ONLY_HERE), found


@pytest.mark.parametrize("stream", [full, unread, closed, Own])
def test_a_stream_that_takes_nothing_is_no_reason_to_raise(
    stream: Callable[[], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stderr", stream())
    say("something")


def test_where_there_is_no_stderr_the_output_of_the_program_stays_as_it_is(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stderr", None)
    say("something")
    assert capsys.readouterr().out == ""


def test_it_is_one_line_after_our_name(capsys: pytest.CaptureFixture[str]) -> None:
    say("something")
    assert capsys.readouterr().err == "prismdbg: something\n"


def test_an_import_survives_what_fails_after_it_and_what_cannot_be_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "fake_torch.py").write_text("there = 1\n")

    def imported(name: str) -> None:
        raise ValueError("not today")

    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "meta_path", [AfterImport(["fake_torch"], imported, "not active"), *sys.meta_path])
    monkeypatch.setattr(sys, "stderr", full())
    module = importlib.import_module("fake_torch")
    del sys.modules["fake_torch"]
    assert module.there == 1


def test_an_adapter_registers_also_where_it_cannot_be_said(monkeypatch: pytest.MonkeyPatch) -> None:
    registered: list[object] = []
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setattr(registration.restore_point, "_handler", registered.append)
    monkeypatch.setattr(registration.restore_point, "_is_reached", False)
    monkeypatch.setattr(sys, "stderr", full())
    registration.register("fake", {"model": 1}, [])
    assert registered == [{"model": 1}]


def test_a_program_begins_although_its_own_sitecustomize_fails_and_nothing_can_be_said(tmp_path: Path) -> None:
    """Python ends before the program's first line where `sitecustomize` raises and stderr cannot be written to."""
    inject, own = tmp_path / "inject", tmp_path / "own"
    inject.mkdir()
    own.mkdir()
    (inject / "sitecustomize.py").write_bytes((PACKAGE / "rank" / "inject" / "sitecustomize.py").read_bytes())
    (inject / "prismdbg").symlink_to(PACKAGE)
    (own / "sitecustomize.py").write_text("raise ValueError('not today')")
    (tmp_path / "config.json").write_text("{}")
    environment = {
        **os.environ,
        "PYTHONPATH": f"{inject}{os.pathsep}{own}",
        "PRISMDBG_CONFIG": str(tmp_path / "config.json"),
    }
    with Path("/dev/full").open("wb") as stderr:
        command = [sys.executable, "-c", "print('began')"]
        done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, stderr=stderr, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (0, b"began\n")
