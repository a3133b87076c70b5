"""What a replayed call may differ in: lengths of pickles are counted, all else of its structure is a difference."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from prismdbg.model.collective import TensorMeta
from prismdbg.model.ops import OPS
from prismdbg.rank.replay.comparison import Difference, Measure, Sent, Tally, compare
from tests.unit.logs import lone_collective

Issue = Callable[[], list[Difference]]

# A function and a file of these names are what tells that a call carries a pickle.
_SOURCE = compile("def broadcast_object_list(issue): return issue()", "/torch/distributed/distributed_c10d.py", "exec")


def plainly(issue: Issue) -> list[Difference]:
    return issue()


def in_object_call(issue: Issue) -> list[Difference]:
    names: dict[str, Any] = {}
    exec(_SOURCE, names)
    found: list[Difference] = names["broadcast_object_list"](issue)
    return found


BYTES = TensorMeta((9,), "uint8")


def fields(
    tensor: torch.Tensor,
    recorded: TensorMeta = BYTES,
    *,
    strict: bool = False,
    root: int = 0,
    issued: Callable[[Issue], list[Difference]] = in_object_call,
) -> tuple[list[str], Tally]:
    """What differs of a broadcast, and what is counted."""
    sent = [tensor]
    call: Any = SimpleNamespace(
        spec=OPS["broadcast_"], root=root, tag=0, reduce_op="", inputs=sent, outputs=sent, sent=sent
    )
    record = lone_collective(
        op="broadcast_", root=0, reduce_op="", inputs=(recorded,), outputs=(recorded,), fingerprint=17
    )
    tally = Tally()
    found = issued(lambda: compare(call, record, tally, Measure(strict=strict), Sent(call)))
    return [difference.field for difference in found], tally


def of_bytes(*shape: int) -> torch.Tensor:
    return torch.zeros(shape, dtype=torch.uint8)


def test_a_pickle_of_another_length_is_counted_once() -> None:
    found, tally = fields(of_bytes(12))
    assert found == [] and (tally.compared, tally.fingerprints, tally.object_notes) == (1, 1, 1)


def test_strictly_it_is_a_difference() -> None:
    found, tally = fields(of_bytes(12), strict=True)
    assert found == ["inputs", "outputs"] and tally.object_notes == 0


@pytest.mark.parametrize(
    ("tensor", "recorded", "root", "expected"),
    [
        (torch.zeros(2, dtype=torch.int64), TensorMeta((1,), "int64"), 0, ["inputs", "outputs"]),  # more objects
        (torch.zeros(12), BYTES, 0, ["inputs", "outputs"]),
        (of_bytes(3, 4), BYTES, 0, ["inputs", "outputs"]),
        (of_bytes(12), BYTES, 1, ["root", "inputs", "outputs"]),
    ],
)
def test_another_call_is_a_difference(
    tensor: torch.Tensor, recorded: TensorMeta, root: int, expected: list[str]
) -> None:
    found, tally = fields(tensor, recorded, root=root)
    assert found == expected and tally.object_notes == 0


def test_bytes_that_are_no_pickle_have_their_length() -> None:
    assert fields(of_bytes(12), issued=plainly)[0] == ["inputs", "outputs"]
