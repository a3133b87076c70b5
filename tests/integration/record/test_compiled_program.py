"""A program under torch.compile: dynamo compiles the program's functions and none of prismdbg's."""

from __future__ import annotations

from pathlib import Path

import pytest
from jobs import forked, record, replay, run

pytestmark = pytest.mark.job

PROGRAM = Path(__file__).parents[1] / "programs" / "compiled.py"


@pytest.mark.parametrize("native", [False, True], ids=["python", "native"])
def test_dynamo_compiles_nothing_of_prismdbg(native: bool, tmp_path: Path) -> None:
    """The last word of a line are the functions that were compiled and are neither the program's nor torch's."""
    recorded = record(forked(PROGRAM, ranks=2), tmp_path / "run", native=native)
    assert recorded.ended.code == 0, recorded.ended.output
    bare = run(forked(PROGRAM, ranks=2), tmp_path / "bare.txt")
    assert sorted(recorded.ended.lines("rank")) == sorted(bare.lines("rank")) != []
    assert all(line.endswith("[]") for line in bare.lines("rank"))

    replayed = replay(recorded.folder(1))
    assert (replayed.code, replayed.divergence) == (0, None), replayed.output
    assert [line for line in recorded.ended.lines("rank") if line in replayed.output.splitlines()] != []
