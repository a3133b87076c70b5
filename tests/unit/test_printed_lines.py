"""Programs of the tests print a line as one text: without a buffer, each argument of `print` is a write of its own,
and lines of several ranks mix in the middle. Where a text and its end were parted can be mended (`Ended.lines`)."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
PROGRAMS = sorted((TESTS / "integration" / "programs").rglob("*.py")) + sorted(
    (TESTS / "integration" / "chain_jobs").rglob("*.py")
)


def prints_of_several_texts(source: str) -> list[int]:
    """Lines of the calls of `print` that write more than one text."""
    return [
        call.lineno
        for call in ast.walk(ast.parse(source))
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "print"
        if len(call.args) > 1 or any(isinstance(argument, ast.Starred) for argument in call.args)
    ]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda path: str(path.relative_to(TESTS)))
def test_a_line_is_one_text(program: Path) -> None:
    assert prints_of_several_texts(program.read_text()) == []


def test_calls_with_several_texts_are_found() -> None:
    assert prints_of_several_texts("print(1)\nprint(1, 2)\nprint(*lines)\nprint(f'{1} {2}', flush=True)\n") == [2, 3]
    assert len(PROGRAMS) > 50
