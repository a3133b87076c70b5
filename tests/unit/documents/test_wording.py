"""What a user reads: the advice of an error begins with a verb, and terms that were given up do not come back."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
MODULES = sorted([*(ROOT / "prismdbg").rglob("*.py"), *(ROOT / "tui").rglob("*.py"), *(ROOT / "images").rglob("*.py")])
PAGES = [
    *(ROOT / name for name in ("README.md", "SECURITY.md", "CHANGELOG.md")),
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted((ROOT / "examples").rglob("README.md")),
]

# By the glossary's word for it (docs/glossary.md), or by the plain one.
RETIRED = {
    "timeline": ["time line"],
    "checkpoint": ["process image", "saved place", "image of the rank", "images of the rank", "restoring the image"],
    "identical": ["the run that was"],
    "synthesized": ["was made up", "is made up", "made up"],
    "cancelled": ["given up"],
    "hang": ["un-hung"],
    "straggler": ["got slow"],
    "after the end moment": ["behind the capsule's end"],
    "exposed communication": ["shown transfer", "transfer that nothing hides"],
    "fidelity": ["what this is worth", "what that is worth", "to be believed"],
    "recording": ["in the record", "from the record", "leaves the record", "left the record", "the record ends"],
    "row": ["a lane a", "lane a rank"],
    "waiting for a CPU": ["in line for a processor"],
    "try": ["what to do:"],
    "influences": ["has a say", "have a say"],
    "complete step": ["whole step", "whole steps"],
    "train": ["a job learns", "ranks learn"],
    "the output says so": ["which is said", "it is said"],
    "created automatically": ["capsules by themselves", "capsule by itself"],
    "the field's word": ["walk the stack", "is no stopwatch", "made-up"],
}
# Where a page may tell a story, a program says plainly what is wrong. `{}`: a value. Case counts in single letters.
RETIRED_IN_MESSAGES = {
    "does not exist, no such file": ["is not there", "are not there"],
    "already exists": ["there already"],
    "unknown, no": [
        "there is no",
        "there was no",
        "there are no",
        "no X is called",
        "is not known",
        "nothing is known",
    ],
    "contains": ["holds no", "hold no", "holds nothing", "holds the rank"],
    "this version": ["this prismdbg reads"],
    "breakpoint": ["stop {}:", "no stops", "a stop at", "that stop", "the stop's"],
    "checkpoint": ["image {}", "an image of", "no images", "no image ", "images can"],
    "start moment": ["before A", "since A", "to A", "from A", "capsule's beginning"],
    "end moment": ["at B", "to B", "after B"],
    "the rank is lost": ["rank is gone"],
    "no error message": ["without a word", "no word", "said nothing", "nothing was said", "last word"],
    "another user": ["somebody", "nobody"],
    "bug": ["defect of prismdbg"],
    "checked, searched": ["looked at", "looked for", "looks at", "look at", "looking for", "look there", "looked into"],
    "depends on": ["rests on", "rest on", "stands on", "stand on"],
    "represents": ["stands for", "stand for"],
    "is at": ["it stands", "it stood", "rank stands", "rank stood"],
    "regular file": ["plain file"],
    "truncated": ["cut off"],
    "complete": ["not whole", "no whole", "is whole"],
    "created, built": ["is made", "was made", "be made", "makes it", "make it", "made by"],
    "requested": ["asked for"],
    "inconclusive": ["cannot tell"],
    "each other": ["one another", "one another's"],
    "continues": ["went on", "goes on", "to go on"],
    "at the same time": ["all at once", "at most at once"],
    "in segments": ["in pieces"],
    "is cancelled": ["not waited for"],
    "source line": ["at another line"],
    "never joined": ["never came"],
    "not reliable": ["do not conclude"],
    "the recorded rank, the recorded program": ["the recorded one"],
    "interpolated": ["guessed"],
    "only at this event": ["belongs to this event"],
    "previous, next": ["what came and went", "the pane before", "the pane behind", "goes on there"],
}
# `is no folder` is read twice; `is no longer` and `no more` are not.
NO_NOUN = re.compile(r"\bis no (?!longer\b|more\b)\w")
# Advice begins with one of these, or with the option to give.
VERBS = frozenset(
    re.findall(
        r"\w+",
        "add ask begin build capture check choose close compare convert copy count create delay delete do emulate end "
        "fetch free give go index install interrupt keep leave let list measure name pause pip press print put raise "
        "read record register remove replay report restore run sample see select send set simulate slice stretch "
        "switch trace treat try type unset use wait watch write",
    )
)


def strings(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Those that are no docstrings: what a program says is among them. `{}` stands for each value of an f-string."""
    quiet = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        and node.body and isinstance(node.body[0], ast.Expr)
    }  # fmt: skip
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            parts = [part.value if isinstance(part, ast.Constant) else "{}" for part in node.values]
            quiet |= {id(part) for part in node.values}
            yield node.lineno, "".join(map(str, parts))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in quiet:
            yield node.lineno, node.value


def hints(tree: ast.AST) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        given = [word.value for word in node.keywords if word.arg == "hint"] if isinstance(node, ast.Call) else []
        if isinstance(node, ast.Assign):
            given = [node.value for name in node.targets if isinstance(name, ast.Name) and name.id.endswith("HINT")]
        for value in given:
            if isinstance(value, ast.JoinedStr):
                value = value.values[0]
            if isinstance(value, ast.Constant) and isinstance(value.value, str) and " " in value.value.strip():
                yield value.lineno, value.value


def begins_with_a_verb(hint: str) -> bool:
    first = hint.strip("`'").partition(" ")[0].rstrip(":,").lower()
    return first in VERBS or first.startswith("--")


def retired(text: str, *more: dict[str, list[str]]) -> list[str]:
    """Words with a capital letter are meant so: `before A` is a moment."""
    words = [word for terms in (RETIRED, *more) for retired in terms.values() for word in retired]
    small = text.lower()
    return [
        word
        for word in words
        if word.lower() in small  # which tells most of them at a tenth of the cost
        and re.search(rf"(?<!\w){re.escape(word)}(?!\w)", text, re.NOFLAG if word != word.lower() else re.IGNORECASE)
    ]


def in_message(text: str) -> list[str]:
    return [*retired(text, RETIRED_IN_MESSAGES), *NO_NOUN.findall(text)]


def test_what_modules_say() -> None:
    for module in MODULES:
        tree, name = ast.parse(module.read_text()), module.relative_to(ROOT)
        said = list(strings(tree))
        if in_message("\n".join(text for _, text in said)):  # of all of them at once, at a tenth of the cost
            assert not [(name, line, words) for line, text in said if (words := in_message(text))]
        assert not [(name, line, text) for line, text in hints(tree) if not begins_with_a_verb(text)]


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_what_a_page_says(page: Path) -> None:
    assert not retired(page.read_text())


def test_a_retired_term_and_advice_without_a_verb_are_noticed() -> None:
    tree = ast.parse('raise E(f"{x} lies on the time line", hint="the file was altered")')
    assert [words for _, text in strings(tree) if (words := retired(text))] == [["time line"]]
    assert [begins_with_a_verb(text) for _, text in hints(tree)] == [False]
    assert begins_with_a_verb("use one of: 2, 4") and begins_with_a_verb("--until 11.1, or leave it out")


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ('f"{path} is there already"', ["there already"]),
        ('f"{path} is no folder"', ["is no f"]),
        ('f"{path} is no longer a folder"', []),
        ('f"stop {number}: {title}"', ["stop {}:"]),
        ('f"memory since A at {b}", "Memory since a change"', ["since A"]),
        ('"""There is no such thing."""', []),  # a docstring
    ],
)
def test_words_that_a_message_does_not_use_are_noticed(code: str, words: list[str]) -> None:
    assert [word for _, text in strings(ast.parse(code)) for word in in_message(text)] == words
