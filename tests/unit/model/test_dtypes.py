"""The table of element types is torch's own."""

from __future__ import annotations

import torch

from prismdbg.model.collective import TensorMeta
from prismdbg.model.dtypes import ITEM_BYTES, NUMBERS, UNKNOWN, name_of
from prismdbg.rank.recording.log_writer import encode_tensors

TORCHS = {value for value in vars(torch).values() if isinstance(value, torch.dtype)}


def test_every_type_that_torch_has_is_known_with_its_size() -> None:
    torchs = {str(dtype).removeprefix("torch."): dtype.itemsize for dtype in TORCHS}
    assert {name: ITEM_BYTES[name] for name in torchs} == torchs
    assert UNKNOWN not in NUMBERS.values()


def test_a_type_of_a_newer_torch_is_logged_as_unknown() -> None:
    count, entry = encode_tensors([TensorMeta(shape=(2,), dtype="float2", device="cpu")])
    assert (count, name_of(entry[0])) == (1, "scalar255")
