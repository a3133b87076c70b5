"""The bytes of tensors of every kind, in pieces, as numpy has them."""

from __future__ import annotations

import base64
import struct
from typing import Any

import pytest
import torch

from prismdbg.errors import UsageError
from prismdbg.rank.debug import tensor_bytes
from prismdbg.rank.debug.tensor_bytes import read_bytes


def data(part: torch.Tensor, offset: int = 0, count: int = 1000) -> bytes:
    found = read_bytes(part, offset, count)
    assert found["bytes"] == part.numel() * part.element_size()
    raw = base64.b64decode(found["data"])
    assert len(raw) == found["count"]
    return raw


def test_elements_come_in_order_wherever_they_lie(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = torch.arange(12.0).reshape(3, 4)
    assert data(whole) == struct.pack("<12f", *range(12))
    assert data(whole.t()) == struct.pack("<12f", 0, 4, 8, 1, 5, 9, 2, 6, 10, 3, 7, 11)
    assert data(whole[:, 1:3]) == struct.pack("<6f", 1, 2, 5, 6, 9, 10)
    monkeypatch.setattr("prismdbg.rank.program.tensor_parts.CHUNK", 2)
    for offset in range(0, 50, 3):
        for count in (0, 1, 5, 17):
            assert data(whole.t(), offset, count) == data(whole.t())[offset : offset + count]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.bool, torch.int8, torch.complex64, torch.float8_e4m3fn])
def test_elements_of_any_type(dtype: Any) -> None:
    raw = torch.tensor([0, 1, 0, 1, 1, 0, 0, 1], dtype=torch.uint8)
    assert data(raw.view(dtype)) == bytes(raw.tolist())


def test_where_they_lie_and_how_many_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = torch.arange(4, dtype=torch.int64)
    assert read_bytes(whole, 8, 8)["address"] == whole.data_ptr() + 8
    assert read_bytes(whole[::2], 0, 8)["address"] == 0
    assert data(torch.empty(0)) == data(whole, 100) == b""
    monkeypatch.setattr(tensor_bytes, "MOST_BYTES", 10)
    assert len(data(whole)) == 10
    assert data(torch.tensor([1j], dtype=torch.complex64).conj()) == struct.pack("<2f", 0, -1)


def test_what_has_no_elements_is_an_error() -> None:
    with pytest.raises(UsageError, match="cannot be read"):
        read_bytes(torch.empty(2, device="meta"), 0, 8)
