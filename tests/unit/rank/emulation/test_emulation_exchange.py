"""What ranks that run in turn receive of each other: the collective itself, computed from what all of them sent."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest
import torch

from prismdbg.model.collective import Identity
from prismdbg.model.ops import OPS, OpSpec
from prismdbg.rank.c10d.call import Call
from prismdbg.rank.emulation import exchange
from prismdbg.settings.emulation import Policy

SIZE = 3
HERE = Identity("4", 7)


@dataclass
class Played:
    """A call of the member at place 1 of three."""

    name: str
    outputs: list[torch.Tensor]
    inputs: list[torch.Tensor]
    reduce_op: str = ""
    received: tuple[int, ...] = ()
    sent: tuple[int, ...] = ()
    rank: int = 1
    size: int = SIZE
    group_name: str = "4"
    spec: OpSpec = field(init=False)

    def __post_init__(self) -> None:
        self.spec = OPS[self.name]

    def _argument(self, position: int | None, default: Any) -> Any:
        splits = {self.spec.input_splits: self.sent, self.spec.output_splits: self.received}
        return splits.get(position, default) if position is not None else default

    @property
    def parts_sent(self) -> list[torch.Tensor]:
        return Call._parts(self, self.inputs, self.spec.input_splits)  # type: ignore[arg-type]

    @property
    def parts_received(self) -> list[torch.Tensor]:
        return Call._parts(self, self.outputs, self.spec.output_splits)  # type: ignore[arg-type]


def raw(*values: float, dtype: torch.dtype = torch.float32) -> bytes:
    return torch.tensor(values, dtype=dtype).numpy().tobytes()


def filled(call: Played, said: dict[int, bytes]) -> list[list[float]]:
    exchange.fill(call, call.outputs, call.inputs, said)  # type: ignore[arg-type]
    return [tensor.tolist() for tensor in call.outputs]


@pytest.mark.parametrize(
    ("reduce_op", "found"), [("SUM", [14.0]), ("AVG", [14.0 / 3]), ("MAX", [8.0]), ("MIN", [2.0]), ("PRODUCT", [64.0])]
)
def test_a_reduction_is_that_of_what_all_members_sent(reduce_op: str, found: list[float]) -> None:
    mine = torch.tensor([4.0])
    call = Played("allreduce_", [mine], [mine], reduce_op)
    assert filled(call, {0: raw(2), 2: raw(8)}) == [pytest.approx(found)]


def test_a_share_of_a_reduction() -> None:
    call = Played("_reduce_scatter_base_", [torch.zeros(2)], [torch.arange(6.0)], "SUM")
    said = {0: raw(*range(10, 16)), 2: raw(*range(100, 106))}
    assert filled(call, said) == [[2.0 + 12 + 102, 3.0 + 13 + 103]]


def test_gathered_parts_stand_in_the_order_of_the_group() -> None:
    said = {0: raw(1, 2), 2: raw(5, 6)}
    mine = torch.tensor([3.0, 4.0])
    assert filled(Played("_allgather_base_", [torch.zeros(6)], [mine]), said) == [[1, 2, 3, 4, 5, 6]]
    assert filled(Played("allgather_", [torch.zeros(2) for _ in range(3)], [mine]), said) == [[1, 2], [3, 4], [5, 6]]


def test_an_all_to_all_puts_each_part_where_its_sender_stands() -> None:
    call = Played("alltoall_base_", [torch.zeros(5, 1)], [torch.arange(4.0)[:, None]], "", (2, 1, 2), (0, 1, 3))
    assert filled(call, {0: raw(10, 11), 2: raw(20, 21)}) == [[[10], [11], [0], [20], [21]]]


def test_it_is_known_whose_values_of_how_many_bytes_are_wanted() -> None:
    counts = Played("alltoall_base_", [torch.zeros(3, dtype=torch.int64)], [torch.zeros(3, dtype=torch.int64)])
    assert exchange.wanted(counts, HERE) == {"4|7<0>1": (0, 8), "4|7<2>1": (2, 8)}  # type: ignore[arg-type]
    rows = Played("alltoall_base_", [torch.zeros(4, 2)], [torch.zeros(3, 2)], "", (3, 1, 0), (1, 1, 1))
    assert exchange.wanted(rows, HERE) == {"4|7<0>1": (0, 24)}, "nothing comes from the last"  # type: ignore[arg-type]
    sums = Played("allreduce_", [torch.zeros(2)], [torch.zeros(2)], "SUM")
    assert exchange.wanted(sums, HERE) == {"4|7<0": (0, 8), "4|7<2": (2, 8)}  # type: ignore[arg-type]


def test_what_cannot_be_combined_here_is_not_wanted() -> None:
    tiny = torch.zeros(2, dtype=torch.float8_e5m2)
    assert exchange.wanted(Played("allreduce_", [tiny], [tiny], "SUM"), HERE) is None  # type: ignore[arg-type]
    mine = torch.zeros(2)
    assert exchange.wanted(Played("allreduce_", [mine], [mine], "PREMUL_SUM"), HERE) is None  # type: ignore[arg-type]


def test_members_meet_from_the_first_counts_on_and_in_every_group_among_them() -> None:
    counts: Any = Played("alltoall_base_", [torch.zeros(3, dtype=torch.int64)], [torch.zeros(3, dtype=torch.int64)])
    rows: Any = Played("alltoall_base_", [torch.zeros(3)], [torch.zeros(3)])
    sums: Any = Played("allreduce_", [torch.zeros(3)], [torch.zeros(3)], "SUM", group_name="9")
    turns = exchange.Exchange()
    members = [3, 5, 7]
    assert turns.meets(counts, Policy.AUTO, members)
    assert not turns.meets(counts, Policy.BALANCED, members)
    assert not turns.meets(rows, Policy.AUTO, members)
    turns.began(members)
    assert turns.meets(rows, Policy.AUTO, members)
    assert turns.meets(sums, Policy.AUTO, [7, 3])
    sums.group_name = "10"
    assert not turns.meets(sums, Policy.AUTO, [3, 4, 5])  # rank 4 does not run
