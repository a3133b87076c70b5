"""What gloo stages for a collective, by formula; against real ranks in `tests/integration/emulate/test_emulate.py`."""

from __future__ import annotations

from dataclasses import replace

import pytest

from prismdbg.memory.backend import Staged, modelled, staged
from prismdbg.model.collective import Collective, Group, TensorMeta
from prismdbg.model.moment import Moment
from tests.unit.logs import lone_collective

ROW, WHOLE = TensorMeta((4, 8), "float32"), TensorMeta((16, 8), "float32")
GROUPS = {"0": Group(name="0", ranks=(5, 6, 7, 8), backend="gloo")}


def call(op: str, inputs: int, outputs: int, *, root: int = -1, number: int = 1) -> Collective:
    return lone_collective(
        record_id=number,
        moment=Moment(0, number),
        op=op,
        root=root,
        inputs=(ROW,) * inputs,
        outputs=(ROW,) * outputs,
    )


@pytest.mark.parametrize(
    ("record", "at_once", "in_all"),
    [
        (call("allgather_", 1, 4), 4, 8),
        (replace(call("_allgather_base_", 1, 0), outputs=(WHOLE,)), 4, 8),
        (call("allgather_into_tensor_coalesced_", 1, 4), 4, 4 + 1),
        (call("allgather_into_tensor_coalesced_", 2, 8), 2 + 8, 2 + 8 + 2),
        (replace(call("_reduce_scatter_base_", 0, 1), inputs=(WHOLE,)), 4, 4),
        (call("reduce_scatter_tensor_coalesced_", 4, 1), 4, 4),
        (call("reduce_scatter_", 4, 1), 3, 3),
        (call("allreduce_coalesced_", 1, 1), 0, 0),
        (call("allreduce_coalesced_", 3, 3), 3, 3),
        (call("gather_", 1, 4, root=2), 4, 8),
        (call("gather_", 1, 0, root=0), 0, 0),
        (call("scatter_", 4, 1, root=2), 4, 4),
        (call("scatter_", 0, 1, root=0), 0, 0),
        (call("alltoall_", 4, 4), 8, 8),
        (call("alltoall_base_", 1, 1), 0, 0),
        (call("allreduce_", 1, 1), 0, 0),
        (call("broadcast_", 1, 1, root=0), 0, 0),
        (call("send", 1, 0, root=1), 0, 0),
        (call("barrier", 0, 0), 0, 0),
    ],
    ids=lambda value: value.op if isinstance(value, Collective) else "",
)
def test_a_collective_stages(record: Collective, at_once: int, in_all: int) -> None:
    row = 4 * 8 * 4
    assert staged(record, place=2) == Staged(at_once_bytes=at_once * row, all_bytes=in_all * row)


def test_a_mean_takes_two_scalars_a_tensor() -> None:
    assert staged(replace(call("allreduce_", 1, 1), reduce_op="AVG"), place=2).all_bytes == 8 + 4


def test_the_most_at_once_is_that_of_the_largest_and_others_are_counted() -> None:
    elsewhere = replace(call("allgather_", 1, 4, number=3), inputs=(replace(ROW, device="cuda:0"),))
    found = modelled([call("allgather_", 1, 4), call("allgather_", 1, 2, number=2), elsewhere], GROUPS, rank=7)
    assert (found.at_once_bytes, found.all_bytes) == (4 * 128, 2 * 6 * 128)
    assert found.largest is not None and found.largest.moment == Moment(0, 1)
    assert (found.collectives, found.not_modelled) == (2, 1)


def test_nothing_staged_has_no_largest() -> None:
    assert modelled([call("allreduce_", 1, 1)], GROUPS, rank=7).largest is None
