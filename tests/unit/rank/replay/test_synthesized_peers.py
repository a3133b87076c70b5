"""What virtual peers assume where nothing is recorded: that they send what this rank sends, of any type and size."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from prismdbg.model.collective import State
from prismdbg.model.ops import OPS
from prismdbg.rank.replay.peers import SynthesizedPeers
from tests.unit.logs import lone_collective


def answered(
    op: str, outputs: list[torch.Tensor], inputs: list[torch.Tensor], reduce_op: str = "", size: int = 2
) -> None:
    call: Any = SimpleNamespace(spec=OPS[op], received=outputs, inputs=inputs, reduce_op=reduce_op, size=size, rank=1)
    assert SynthesizedPeers().answer(call, None).synthesized


@pytest.mark.parametrize(
    ("tensor", "reduce_op", "expected"),
    [
        (torch.tensor([True, False]), "SUM", [1.0, 0.0]),
        (torch.tensor([True, False]), "PRODUCT", [1.0, 0.0]),
        (torch.tensor([True, False]), "BXOR", [0.0, 0.0]),
        (torch.tensor([2.0, 3.0]).to(torch.float8_e4m3fn), "SUM", [4.0, 6.0]),
        (torch.tensor([2.0, 3.0]).to(torch.float8_e5m2), "PRODUCT", [4.0, 8.0]),
        (torch.tensor([2.0, 3.0]), "PREMUL_SUM", [4.0, 6.0]),
        (torch.tensor([2.0, 3.0]), "PRODUCT", [4.0, 9.0]),
        (torch.tensor([2, 3]), "BXOR", [0.0, 0.0]),
        (torch.tensor([2, 3]), "MAX", [2.0, 3.0]),
    ],
)
def test_a_reduction_is_that_of_equal_members_of_any_type(
    tensor: torch.Tensor, reduce_op: str, expected: list[float]
) -> None:
    late = tensor.clone()
    answered("allreduce_", [tensor], [tensor], reduce_op)
    assert tensor.float().tolist() == expected
    record = lone_collective(reduce_op=reduce_op, state=State.SCHEDULED)
    SynthesizedPeers().complete(record, 2, [late])  # of one that was in flight
    assert late.float().tolist() == expected


def test_a_gather_of_parts_of_several_lengths_is_filled() -> None:
    short, equal, long = torch.zeros(2), torch.zeros(3), torch.zeros(5)
    answered("allgather_", [short, equal, long], [torch.arange(1.0, 4.0)], size=3)
    assert [t.tolist() for t in (short, equal, long)] == [[1, 2], [1, 2, 3], [1, 2, 3, 1, 2]]


def test_each_rank_has_its_own_part_of_each_coalesced_tensor() -> None:
    """The list has the tensors of the first rank, then those of the second."""
    outputs = [torch.zeros(2), torch.zeros(3), torch.zeros(2), torch.zeros(3)]
    first, second = torch.full((2,), 1.0), torch.full((3,), 2.0)
    answered("allgather_coalesced_", outputs, [first, second])
    assert [t.tolist() for t in outputs] == [[1, 1], [2, 2, 2], [1, 1], [2, 2, 2]]


def test_a_reduce_scatter_gives_the_own_share() -> None:
    mine = torch.zeros(2)
    answered("_reduce_scatter_base_", [mine], [torch.arange(4.0)], "SUM")
    assert mine.tolist() == [4.0, 6.0]


@pytest.mark.parametrize("op", ["scatter_", "recv_", "broadcast_"])
def test_what_only_a_peer_knows_is_zero(op: str) -> None:
    mine = torch.full((2,), float("nan"))
    answered(op, [mine], [])
    assert mine.tolist() == [0.0, 0.0]


def test_an_all_to_all_of_other_sizes_is_zero() -> None:
    same, other = torch.zeros(2), torch.full((3,), float("nan"))
    answered("alltoall_base_", [same], [torch.ones(2)])
    answered("alltoall_base_", [other], [torch.ones(2)])
    assert (same.tolist(), other.tolist()) == ([1.0, 1.0], [0.0, 0.0, 0.0])
