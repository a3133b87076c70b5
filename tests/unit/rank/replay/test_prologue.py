"""Before its restore point a replayed program is answered from the record of its own beginning, else by synthesis."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from tiny_log import FLOATS, TinyLog

from prismdbg.capsule.log import format as fmt
from prismdbg.model.collective import TensorMeta
from prismdbg.model.ops import OPS
from prismdbg.rank.replay.prologue import Prologue

SIZE = 4
RECORDED = [9.0, 8.0, 7.0, 6.0]
ECHOED = [SIZE * value for value in (1.0, 2.0, 3.0, 4.0)]


def call() -> Any:
    """The first all_reduce of the default group, of this rank's 1, 2, 3, 4."""
    own = torch.tensor([1.0, 2.0, 3.0, 4.0])
    how = {"group_name": "0", "root": -1, "tag": 0, "rank": 0, "size": SIZE, "reduce_op": "SUM", "is_captured": False}
    return SimpleNamespace(
        spec=OPS["allreduce_"], inputs=[own], outputs=[own], received=[own], result=lambda work: work, **how
    )


def begun(folder: Path, *, op: str = "allreduce_", outputs: Sequence[TensorMeta] = (FLOATS,)) -> TinyLog:
    log = TinyLog(folder)
    log.group("0", range(SIZE))
    log.complete(log.issue(0, 1, op=op, outputs=outputs), torch.tensor(RECORDED).numpy().tobytes())
    return log


def of_another_size(folder: Path) -> None:
    log = TinyLog(folder)
    log.complete(log.issue(0, 1), bytes(8))


def not_kept(folder: Path) -> None:
    log = TinyLog(folder)
    log.complete(log.issue(0, 1))


def lost(folder: Path) -> None:
    (begun(folder).folder / fmt.payload_segment(0)).unlink()


@pytest.mark.parametrize(
    ("write", "records", "received"),
    [
        (begun, 1, RECORDED),
        (begun, 0, ECHOED),  # recorded after the restore point
        (lambda folder: begun(folder, op="broadcast_"), 1, ECHOED),
        (lambda folder: begun(folder, outputs=(TensorMeta((2, 2), "float32"),)), 1, ECHOED),
        (of_another_size, 1, ECHOED),
        (not_kept, 1, ECHOED),
        (lost, 1, ECHOED),
    ],
)
def test_what_the_record_cannot_answer_is_synthesized_and_named(
    write: Callable[[Path], object], records: int, received: list[float], tmp_path: Path
) -> None:
    write(tmp_path)
    prologue, called = Prologue(tmp_path, records), call()
    prologue.collective(called, lambda *_: pytest.fail("nothing is there to redispatch to"))
    assert called.outputs[0].tolist() == received
    assert prologue.not_recorded == ([] if received == RECORDED else [OPS["allreduce_"].label])
    assert prologue.issued == 1
