"""The rank's output in a debugger: each text once, also where the rank is put back and writes it again."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from prismdbg.debugger.program import DIFFERS, MAX_COMPARED_BYTES, MAX_OUTPUT_BYTES, Live, LiveProgram
from prismdbg.runtime.rank_folder import RankFolder
from prismdbg.runtime.spec import OUTPUT


class Rank:
    """Its output is a real file, which is cut when it is put back."""

    def __init__(self, folder: RankFolder) -> None:
        self._output = folder.output
        self._file = folder.path / OUTPUT
        self.program = LiveProgram(cast(Live, SimpleNamespace(output=folder.output)))

    def prints(self, text: str) -> None:
        with self._file.open("a") as file:
            file.write(text)

    def is_put_back_to(self, output: str) -> None:
        self._output.cut(len(output))

    @property
    def shown(self) -> str:
        return self.program.new_output()


@pytest.fixture
def rank(tmp_path: Path) -> Iterator[Rank]:
    with RankFolder(tmp_path / "rank") as folder:
        yield Rank(folder)


def test_the_same_stretch_is_shown_once(rank: Rank) -> None:
    rank.prints("step 1\nstep 2\nstep 3\n")
    assert rank.shown == "step 1\nstep 2\nstep 3\n"
    for _ in range(3):
        rank.is_put_back_to("step 1\n")
        assert rank.shown == ""
        rank.prints("step 2\nst")
        assert rank.shown == ""
        rank.prints("ep 3\n")
        assert rank.shown == ""
    rank.prints("step 4\n")
    assert rank.shown == "step 4\n"


def test_other_output_is_shown_from_its_line_on(rank: Rank) -> None:
    rank.prints("step 1\nstep 2: 0.5 s\nstep 3\n")
    assert rank.shown
    rank.is_put_back_to("step 1\n")
    assert rank.shown == ""
    rank.prints("step 2: 0.7 s\nst")
    assert rank.shown == f"{DIFFERS}\nstep 2: 0.7 s\nst"
    rank.prints("ep 3\nstep 4\n")
    assert rank.shown == "ep 3\nstep 4\n"
    rank.is_put_back_to("step 1\n")
    rank.prints("step 2: 0.7 s\nstep 3\n")
    assert rank.shown == ""


def test_a_return_that_nobody_looked_at_hides_nothing(rank: Rank) -> None:
    rank.prints("step 1\nstep 2\n")
    assert rank.shown
    rank.is_put_back_to("")
    rank.prints("step 1\nSTEP 2\nstep 3\nstep 4\n")
    assert rank.shown == f"{DIFFERS}\nSTEP 2\nstep 3\nstep 4\n"


def test_of_much_output_the_newest_is_shown_once(rank: Rank) -> None:
    rank.prints("begin\n")
    assert rank.shown == "begin\n"
    much = "x" * (MAX_COMPARED_BYTES + 10)
    rank.prints(much)
    left_out = len(much) - MAX_OUTPUT_BYTES
    assert rank.shown == f"... {left_out} bytes left out\n" + "x" * MAX_OUTPUT_BYTES
    rank.is_put_back_to("begin\n" + "x" * 100)
    assert rank.shown == ""
    rank.prints(much[100:] + "end\n")
    assert rank.shown == "end\n"


def test_what_is_older_than_what_is_compared_is_shown_again(rank: Rank) -> None:
    rank.prints("begin\n" + "x" * MAX_COMPARED_BYTES)
    assert rank.shown
    rank.is_put_back_to("")
    assert rank.shown == ""
    rank.prints("begin\n")
    assert rank.shown == "begin\n"
