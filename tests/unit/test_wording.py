"""What a user reads: the advice of an error begins with a verb, and terms that were given up do not come back."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MODULES = sorted([*(ROOT / "prismdbg").rglob("*.py"), *(ROOT / "tui").rglob("*.py"), *(ROOT / "images").rglob("*.py")])
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), *sorted((ROOT / "examples").rglob("README.md"))]

# By the glossary's word for it (docs/glossary.md).
RETIRED = {
    "timeline": ["time line"],
    "checkpoint": ["process image", "saved place"],
    "identical": ["the run that was"],
    "synthesized": ["was made up", "is made up"],
    "cancelled": ["given up at"],
    "after the end moment": ["behind the capsule's end"],
    "try": ["what to do:"],
}
NO_VERBS = frozenset(
    re.findall(
        r"\w+",
        "a all an any are as at be by each every for he if in is it its letters lines may names neither no nodes "
        "nothing of on one only ranks she some such that the there these they this those to was what who why you",
    )
)


def strings(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Those that are no docstrings: what a program says is among them."""
    docs = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        and node.body and isinstance(node.body[0], ast.Expr)
    }  # fmt: skip
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docs:
            yield node.lineno, node.value


def hints(tree: ast.AST) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        given = [word.value for word in node.keywords if word.arg == "hint"] if isinstance(node, ast.Call) else []
        if isinstance(node, ast.Assign):
            given = [node.value for name in node.targets if isinstance(name, ast.Name) and name.id.endswith("HINT")]
        for value in given:
            if isinstance(value, ast.JoinedStr):
                value = value.values[0]
            if isinstance(value, ast.Constant) and isinstance(value.value, str):
                yield node.lineno, value.value


def retired(text: str) -> list[str]:
    return [
        word for words in RETIRED.values() for word in words if re.search(rf"\b{re.escape(word)}", text, re.IGNORECASE)
    ]


@pytest.mark.parametrize("module", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_what_a_module_says(module: Path) -> None:
    tree = ast.parse(module.read_text())
    assert not [(line, words) for line, text in strings(tree) if (words := retired(text))]
    verbless = [(line, text) for line, text in hints(tree) if text.strip("`'").partition(" ")[0].lower() in NO_VERBS]
    assert not verbless


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_what_a_page_says(page: Path) -> None:
    assert not retired(page.read_text())


def test_a_retired_term_and_advice_without_a_verb_are_noticed() -> None:
    tree = ast.parse('raise E(f"{x} lies on the time line", hint="the file was altered")')
    assert [words for _, text in strings(tree) if (words := retired(text))] == [["time line"]]
    assert [text.partition(" ")[0] in NO_VERBS for _, text in hints(tree)] == [True]
