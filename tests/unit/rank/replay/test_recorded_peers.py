"""What a rank received is put into the program's tensors, wherever their elements lie."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from tiny_log import TinyLog

from prismdbg.capsule.log.reader import read_log
from prismdbg.errors import CapsuleError
from prismdbg.rank.replay.peers import RecordedPeers

VALUES = torch.arange(8, dtype=torch.float32)


def filled(folder: Path, tensors: list[torch.Tensor], values: torch.Tensor = VALUES) -> None:
    log = TinyLog(folder)
    log.group("0", (0, 1), "default_pg")
    log.complete(log.issue(0, 1), values.contiguous().view(torch.uint8).numpy().tobytes())
    (record,) = read_log(folder).collectives
    assert record.payload is not None
    RecordedPeers(folder).fill(tensors, record.payload)


@pytest.mark.parametrize(
    "tensors",
    [
        [torch.zeros(8)],
        [torch.zeros(2, 2), torch.zeros(0), torch.zeros(4)],
        [torch.zeros(16)[::2]],  # not one after another
        [torch.zeros(4), torch.zeros(8)[1::2]],
    ],
)
def test_tensors_are_filled_in_order(tensors: list[torch.Tensor], tmp_path: Path) -> None:
    filled(tmp_path, tensors)
    assert torch.equal(torch.cat([tensor.flatten() for tensor in tensors]), VALUES)


def test_a_tensor_that_is_conjugated_when_it_is_read_gets_the_values(tmp_path: Path) -> None:
    values = torch.tensor([1 + 2j, 3 - 4j], dtype=torch.complex64)
    lazy = torch.zeros(2, dtype=torch.complex64).conj()
    filled(tmp_path, [lazy], torch.view_as_real(values))
    assert lazy.is_conj() and torch.equal(lazy, values)


def test_what_has_another_size_is_refused(tmp_path: Path) -> None:
    kept = torch.zeros(4)
    with pytest.raises(CapsuleError, match="has 32 bytes for a collective that receives 16"):
        filled(tmp_path, [kept])
    assert not kept.any()
