"""YAML that nests, multiplies or goes on: refused at once by scripts and cluster files, with its place."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from prismdbg.errors import UsageError
from prismdbg.script.nodes import Source
from prismdbg.simulate.cluster import checked_yaml
from prismdbg.simulate.cluster.bounded_yaml import MAX_DEPTH

BOUND_S = 10.0  # of processor time; without bounds it is hours
TEXTS = {
    "brackets": "[" * 200_000,
    "braces": "{" * 200_000,
    "pairs": "{a: [" * 40_000,
    "dashes": "- " * 100_000 + "x",
    "questions": "? " * 100_000,
    "indents": "".join(f"{' ' * depth}a:\n" for depth in range(600)),
    "a long list": "a: [" + "1," * 120_000 + "]",
    "aliases": "a: &a [x, x]\nb: &b [*a, *a]\nc: [*b, *b]\n",
    "too large": "#" * (300 << 10),
}


def script(text: str) -> object:
    return Source("file.yaml", text.encode()).compose()


def cluster(text: str) -> object:
    return checked_yaml.parse(text, "file.yaml", example="an example")


@pytest.mark.parametrize("read", [script, cluster])
@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS.keys())
def test_what_is_too_much_is_refused_at_once(read: Callable[[str], object], text: str) -> None:
    began_s = time.process_time()
    with pytest.raises(
        UsageError, match=r"file\.yaml.*(nested too deeply|more than|an alias|at most|larger than|the limit of)"
    ):
        read(text)
    assert time.process_time() - began_s < BOUND_S


@pytest.mark.parametrize("read", [script, cluster])
def test_what_people_write_is_read(read: Callable[[str], object]) -> None:
    depth = MAX_DEPTH // 2 - 2
    read(
        "a:\n"
        + "".join(f"{'  ' * level}a:\n" for level in range(1, depth))
        + "  " * depth
        + "[" * depth
        + "1"
        + "]" * depth
    )
    read("".join(f"a{number}: {number}\n" for number in range(5_000)))
