"""A program that asks a store of torch.distributed, in a replay from its start."""

from __future__ import annotations

from pathlib import Path

import pytest
from jobs import Replayed, forked, record, replay

pytestmark = pytest.mark.job

PROGRAM = Path(__file__).parents[1] / "programs" / "asks_a_store.py"
USES = "the program uses a store of torch.distributed at"


def replayed(how: str, folder: Path) -> Replayed:
    recorded = record(forked(PROGRAM, how, ranks=2), folder / "run", native=True)
    assert recorded.ended.code == 0, recorded.ended.output
    return replay(recorded.folder(1))


def test_a_key_of_another_rank_is_an_error_that_says_so(tmp_path: Path) -> None:
    ended = replayed("key", tmp_path)
    assert [found["text"].partition(",")[0] for found in ended.exceptions] == [
        "prismdbg: this rank has not set loss 0 in the store"
    ]
    assert [note.startswith(f"{USES} {PROGRAM}:30:") for note in ended.notes] == [True]


def test_a_count_without_the_others_is_a_divergence_with_its_cause(tmp_path: Path) -> None:
    """In a store of the program's own, which a replay has no address of."""
    ended = replayed("count", tmp_path)
    assert ended.divergence is not None
    assert ended.divergence["moment"] == "0.4"
    assert [note.startswith(f"{USES} {PROGRAM}:25:") for note in ended.notes] == [True]


def test_what_the_rank_has_set_is_there(tmp_path: Path) -> None:
    ended = replayed("own", tmp_path)
    assert (ended.code, ended.divergence) == (0, None), ended.output
    assert "result 1 5.0" in ended.output
