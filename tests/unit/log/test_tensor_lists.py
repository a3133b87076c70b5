"""What columns say of the lists of tensors of collectives: for many at once, or one after the other."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tiny_log import TinyLog

from prismdbg.capsule.log import format as fmt
from prismdbg.log import segment
from prismdbg.log.log_parts import whole_file
from prismdbg.model.collective import TensorMeta
from prismdbg.model.sketch import Sketch

SKETCH = Sketch(1, 2.0, (3.0, 4.0, 5.0, 6.0))


def lists(length: int) -> list[tuple[TensorMeta, ...]]:
    several = tuple(TensorMeta((number % 7, 2**40, 2**33), "float64") for number in range(length))
    return [(), several, several, several[1:], (TensorMeta((3,), "int16"), TensorMeta((), "bool"))]


def found(folder: Path) -> tuple[list[int], list[int]]:
    """The keys, and the bytes of what is sent."""
    (path,) = folder.iterdir()
    part = whole_file(path)
    words = part.words()
    slots = segment.find_records(words, part).issues
    inputs, outputs = (segment.field(words, slots, fmt.ISSUE, number) for number in (17, 18))
    return (
        segment.tensors_key(words, slots).tolist(),
        segment.tensor_bytes(words, slots, inputs, outputs).tolist(),
    )


@pytest.mark.parametrize("length", [2, 3000], ids=["short", "longer than a part of a key"])
def test_one_after_the_other_they_are_as_all_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, length: int
) -> None:
    log = TinyLog(tmp_path, segment_bytes=1 << 20)
    for tensors in lists(length):
        log.issue(0, 1, inputs=tensors, outputs=tensors[:1], sketch=SKETCH if tensors else None)
    by_few_rows = {}
    for few in (0, 3, 64):
        monkeypatch.setattr(segment, "_FEW_ROWS", few)
        by_few_rows[few] = found(tmp_path)
    assert by_few_rows[0] == by_few_rows[3] == by_few_rows[64]
    keys, sizes = by_few_rows[0]
    assert keys[1] == keys[2] and len(set(keys)) == 4
    assert sizes[0] == 0 and sizes[-1] == 7


def test_a_long_list_takes_few_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """A record of a foreign log may have a million words."""

    class Counted(np.ndarray[Any, np.dtype[np.uint64]]):
        steps = 0

        def __getitem__(self, key: Any) -> Any:
            Counted.steps += 1
            return np.asarray(self)[key]

    words = np.zeros(1 << 16, dtype=np.uint64)
    words[0] = len(words) * segment.SLOT_BYTES
    assert segment.tensors_key(words.view(Counted), np.array([0])).tolist() == [0]
    huge = np.array([1 << 30])
    assert segment.tensor_bytes(words.view(Counted), np.array([0]), huge, huge).tolist() == [0]
    assert Counted.steps < 100
