"""Which collectives ranks have in common, whether or not their sequence numbers ascend, as in nearly all logs."""

from __future__ import annotations

from pathlib import Path
from typing import NoReturn

import numpy as np
import pytest
from tiny_log import TinyLog

from prismdbg.diagnosis.cross_rank import met
from prismdbg.diagnosis.evidence import Evidence
from prismdbg.log.rank_log import read_log


def evidence(folder: Path, *of_rank: list[int]) -> Evidence:
    """By rank the sequence numbers of its collectives, in the order of issue."""
    logs = {}
    for rank, seqs in enumerate(of_rank):
        log = TinyLog(folder / str(rank), rank)
        for number, seq in enumerate(seqs):
            log.complete(log.issue(0, number + 1, seq=seq))
        logs[rank] = read_log(log.folder)
    return Evidence(logs=logs, world_size=len(of_rank))


def rows(found: Evidence) -> dict[int, np.ndarray]:  # type: ignore[type-arg]
    return {rank: np.arange(len(log)) for rank, log in found.columns.items()}


@pytest.mark.parametrize(
    ("of_rank", "common", "places"),
    [
        (([1, 2, 3, 4], [1, 2, 3, 4]), [1, 2, 3, 4], ([0, 1, 2, 3], [0, 1, 2, 3])),
        (([1, 2, 3, 4], [2, 4, 5]), [2, 4], ([1, 3], [0, 1])),
        (([3, 4, 1, 2], [1, 2, 3]), [1, 2, 3], ([2, 3, 0], [0, 1, 2])),
        (([1, 2, 1, 2], [1, 2, 3]), [1, 2], ([2, 3], [0, 1])),  # a group of that name was made again: the last one
        (([1, 2], [3, 4]), [], ([], [])),
    ],
)
def test_the_rows_of_what_all_have(
    of_rank: tuple[list[int], ...], common: list[int], places: tuple[list[int], ...], tmp_path: Path
) -> None:
    found = evidence(tmp_path, *of_rank)
    seqs, by_rank = met(found, rows(found))
    assert seqs.tolist() == common
    assert tuple(by_rank[rank].tolist() for rank in sorted(by_rank)) == places


def test_what_ascends_is_not_sorted_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a log of a million collectives this is most of the time of `why` and `open`."""
    found = evidence(tmp_path, [1, 2, 3], [1, 2, 3])
    picked = rows(found)

    def sorts(*_: object, **__: object) -> NoReturn:
        raise AssertionError("it sorts")

    with monkeypatch.context() as patched:
        for name in ("unique", "argsort", "intersect1d"):
            patched.setattr(np, name, sorts)
        seqs, _ = met(found, picked)
    assert seqs.tolist() == [1, 2, 3]
