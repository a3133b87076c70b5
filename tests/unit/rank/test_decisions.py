"""Where a program decides by a value that it reads."""

from __future__ import annotations

from textwrap import dedent

import pytest

from prismdbg.rank.program.decisions import decided_at


def decided(program: str) -> int:
    """By what is read at the line with `item()`."""
    lines = dedent(program).strip().splitlines()
    (line,) = (number for number, text in enumerate(lines, 1) if "item()" in text)
    return decided_at("\n".join(lines), line)


@pytest.mark.parametrize(
    ("program", "line"),
    [
        ("if loss.item() < best:\n    stop()", 1),
        ("while not done(\n    loss.item()\n):\n    step()", 2),
        ("x = 1 if loss.item() else 2", 1),
        ("value = loss.item() / 2\nmean = value\nif mean < best:\n    stop()", 3),
        ("self.best = loss.item()\nassert self.best < 3", 2),
        ("losses.append(loss.item())\nif sum(losses) > 3:\n    stop()", 2),
        ("def score():\n    return loss.item()\n\nif score() > 3:\n    stop()", 4),
        ("def stops(value, patience):\n    return value > patience\n\nif stops(loss.item(), 3):\n    stop()", 4),
        ("class Early:\n    def step(self, value):\n        if value > 3:\n            self.stop = 1\n\n"
         "early.step(loss.item())", 3),
        ("count = length.item()\nfor _ in range(count):\n    step()", 2),
        ("kept = [x for x in xs if x < loss.item()]", 1),
    ],
)  # fmt: skip
def test_a_value_is_followed_to_the_condition(program: str, line: int) -> None:
    assert decided(program) == line


@pytest.mark.parametrize(
    "program",
    [
        "if step % 10 == 0:\n    print(loss.item())",
        "value = loss.item()\nif value is None:\n    stop()",
        "value = loss.item()\nprint(value)\nif step > 3:\n    stop()",
        "total += loss.item()\nlog(total)",
        "this is no Python: item()",
    ],
)
def test_what_nothing_is_decided_by(program: str) -> None:
    assert decided(program) == 0
