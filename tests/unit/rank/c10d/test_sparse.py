"""Sparse tensors as dense parts, and back."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from prismdbg.rank.c10d import fingerprint, sparse


@pytest.fixture(params=["cpu", "meta"])
def default_device(request: pytest.FixtureRequest) -> Iterator[None]:
    """The one that the program chose for what it makes."""
    with torch.device(request.param):
        yield


@pytest.mark.parametrize("count", [0, 2])
@pytest.mark.usefixtures("default_device")
def test_what_is_taken_apart_is_put_back(count: int) -> None:
    indices, values = torch.arange(count, device="cpu").view(1, -1), torch.ones(count, 3, device="cpu")
    sent = torch.sparse_coo_tensor(indices, values, (5, 3), device="cpu", check_invariants=False)
    target = torch.sparse_coo_tensor(indices[:, :0], values[:0], (5, 3), device="cpu", check_invariants=False)
    data = b"".join(map(fingerprint.as_bytes, sparse.dense_parts([sent])))
    assert sparse.restore(target, memoryview(data)) == len(data)
    assert torch.equal(target.to_dense(), sent.to_dense())
