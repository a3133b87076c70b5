"""The number for a rank's trained state, and that there is none where the optimizer holds nothing."""

from __future__ import annotations

import torch

from prismdbg.rank.recording import state_hash


def test_it_is_that_of_the_parameters_bit_for_bit() -> None:
    one, other = (torch.nn.Parameter(torch.tensor([1.0, value])) for value in (2.0, 2.0000002))
    same = torch.nn.Parameter(one.detach().clone())
    hashes = [state_hash.of(torch.optim.SGD([each], lr=0.1)) for each in (one, same, other)]
    assert hashes[0] == hashes[1] != hashes[2]
    assert len(str(hashes[0])) == 16


def test_an_optimizer_that_holds_no_parameters_has_none() -> None:
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.ones(2))], lr=0.1)
    optimizer.param_groups[0]["params"] = []
    assert state_hash.of(optimizer) is None
