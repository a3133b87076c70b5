"""What synthesized peers send: every value defined, sums as of equal members, noise that can be repeated."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
import torch

from prismdbg.model.ops import OPS, OpSpec
from prismdbg.rank.emulation import filling


@dataclass
class Played:
    """As much of a call as filling looks at."""

    name: str
    size: int = 4
    rank: int = 1
    reduce_op: str = "SUM"
    spec: OpSpec = field(init=False)

    def __post_init__(self) -> None:
        self.spec = OPS[self.name]


def garbage(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.full(shape, float("nan")) if dtype.is_floating_point else torch.full(shape, -77, dtype=dtype)


@pytest.mark.parametrize(
    ("reduce_op", "expected"),
    [("SUM", 8.0), ("PRODUCT", 16.0), ("AVG", 2.0), ("MIN", 2.0), ("MAX", 2.0)],
)
def test_a_reduction_is_that_of_equal_members(reduce_op: str, expected: float) -> None:
    x = torch.full((3,), 2.0)
    filling.echo(Played("allreduce_", reduce_op=reduce_op), [x], [x])  # type: ignore[arg-type]
    assert x.tolist() == [expected] * 3


def test_bitwise_reductions_of_equal_members() -> None:
    x, y = torch.tensor([5]), torch.tensor([5])
    filling.echo(Played("allreduce_", reduce_op="BOR"), [x], [x])  # type: ignore[arg-type]
    filling.echo(Played("allreduce_", reduce_op="BXOR"), [y], [y])  # type: ignore[arg-type]
    assert (x.item(), y.item()) == (5, 0)


def test_a_gather_repeats_what_this_rank_sends() -> None:
    mine = torch.arange(3.0)
    listed = [garbage(3) for _ in range(4)]
    filling.echo(Played("allgather_"), listed, [mine])  # type: ignore[arg-type]
    assert all(torch.equal(t, mine) for t in listed)
    whole = garbage(12)
    filling.echo(Played("_allgather_base_"), [whole], [mine])  # type: ignore[arg-type]
    assert torch.equal(whole, mine.repeat(4))


def test_coalesced_gathers_keep_their_tensors_apart() -> None:
    a, b = torch.zeros(2), torch.ones(3)
    outputs = [t for _ in range(4) for t in (garbage(2), garbage(3))]
    filling.echo(Played("allgather_coalesced_"), outputs, [a, b])  # type: ignore[arg-type]
    assert all(torch.equal(t, (a, b)[i % 2]) for i, t in enumerate(outputs))
    wide = [garbage(8), garbage(12)]
    filling.echo(Played("allgather_into_tensor_coalesced_"), wide, [a, b])  # type: ignore[arg-type]
    assert torch.equal(wide[0], a.repeat(4))
    assert torch.equal(wide[1], b.repeat(4))


def test_a_reduce_scatter_gives_this_ranks_part_scaled() -> None:
    out = garbage(2)
    filling.echo(Played("_reduce_scatter_base_"), [out], [torch.arange(8.0)])  # type: ignore[arg-type]
    assert out.tolist() == [8.0, 12.0]
    parts = [torch.full((2,), float(i)) for i in range(4)]
    filling.echo(Played("reduce_scatter_", reduce_op="AVG"), [out], parts)  # type: ignore[arg-type]
    assert out.tolist() == [1.0, 1.0]


def test_an_exchange_of_other_sizes_is_filled_to_the_end() -> None:
    out = garbage(5)
    filling.echo(Played("alltoall_base_"), [out], [torch.tensor([1.0, 2.0])])  # type: ignore[arg-type]
    assert out.tolist() == [1.0, 2.0, 1.0, 2.0, 1.0]
    filling.echo(Played("alltoall_base_"), [out], [torch.empty(0)])  # type: ignore[arg-type]
    assert out.tolist() == [0.0] * 5


def test_balanced_counts_keep_the_total() -> None:
    counts = garbage(8, dtype=torch.int64)
    filling.balanced([counts], [torch.tensor([20, 0, 0, 0, 0, 0, 0, 1])])
    assert counts.tolist() == [3, 3, 3, 3, 3, 2, 2, 2]
    parts = [garbage(1, dtype=torch.int64) for _ in range(4)]
    filling.balanced(parts, [torch.tensor([7]), torch.tensor([3])])
    assert [p.item() for p in parts] == [3, 3, 2, 2]


def test_noise_is_the_same_for_the_same_seed_and_like_its_donor() -> None:
    one, two, other = garbage(1000), garbage(1000), garbage(1000)
    filling.noise([one], 7, mean=3.0, deviation=0.5)
    filling.noise([two], 7, mean=3.0, deviation=0.5)
    filling.noise([other], 8, mean=3.0, deviation=0.5)
    assert torch.equal(one, two)
    assert not torch.equal(one, other)
    assert abs(one.mean().item() - 3.0) < 0.1
    assert abs(one.std().item() - 0.5) < 0.1


@pytest.mark.parametrize(
    "dtype", [torch.bfloat16, torch.float16, torch.float64, torch.complex64, torch.int64, torch.bool]
)
def test_noise_defines_every_type(dtype: torch.dtype) -> None:
    x = torch.empty(64, dtype=dtype)
    x.view(torch.uint8).fill_(255)
    filling.noise([x], 1)
    assert torch.isfinite(x).all()
    assert not x.bool().any() if not (dtype.is_floating_point or dtype.is_complex) else x.std() > 0


def test_noise_fills_what_is_not_contiguous() -> None:
    base = torch.full((4, 6), float("nan"))
    filling.noise([base[:, ::2]], 1)
    assert torch.isfinite(base[:, ::2]).all()
    assert base[:, 1::2].isnan().all()


def test_what_was_made_in_inference_mode_is_filled() -> None:
    """By a thread that is not in that mode: a backend writes the memory."""
    with torch.inference_mode():
        gathered, counts, noisy = (
            torch.zeros(4),
            torch.zeros(2, dtype=torch.int64),
            torch.zeros(2, dtype=torch.complex64),
        )
    outputs = [t.detach() for t in (gathered, counts, noisy)]
    filling.tile(outputs[0], torch.tensor([1.0, 2.0]))
    filling.balanced([outputs[1]], [torch.tensor([3])])
    filling.noise([outputs[2]], seed=1)
    assert (gathered.tolist(), counts.tolist(), bool(noisy.all())) == ([1, 2, 1, 2], [2, 1], True)


def test_poured_bytes_fit_or_leave_zeros() -> None:
    x = torch.full((4,), 9, dtype=torch.int16)
    filling.pour(x, b"\x01\x00\x02\x00")
    assert x.tolist() == [1, 2, 0, 0]
    filling.pour(x, bytes(range(100)))
    assert x[0].item() == 0x0100


def test_a_seed_depends_on_every_part() -> None:
    seeds = {
        filling.seed_of(0, 5, "group 0 #1"),
        filling.seed_of(0, 5, "group 0 #2"),
        filling.seed_of(1, 5, "group 0 #1"),
    }
    assert len(seeds) == 3
    assert filling.seed_of(0, 5) == filling.seed_of(0, 5)
