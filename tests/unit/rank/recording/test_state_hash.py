"""The number for a rank's trained state, and that there is none where the optimizer holds nothing."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from prismdbg.capsule.log.format import StepSource
from prismdbg.rank.recording import state_hash
from prismdbg.rank.recording.recorded_rank import Recording
from prismdbg.rank.recording.steps import COUNTER
from prismdbg.settings.rank_config import Mode, RankConfig


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


def test_a_hash_that_fails_costs_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    steps: list[int] = []
    recorder: Any = SimpleNamespace(
        begin_step=lambda step, _: steps.append(step), append=lambda *_: None, moment=lambda: (1, 0)
    )
    config = RankConfig(mode=Mode.RECORD, socket_dir=str(tmp_path), run=str(tmp_path))
    recording = Recording(config, recorder, "python", lambda *_: None)
    recording.folder = tmp_path
    monkeypatch.setattr(COUNTER, "optimizer", object)
    monkeypatch.setattr(state_hash, "of", lambda _: 1 / 0)
    recording.hash_at = {1}
    recording.on_step(1, StepSource.OPTIMIZER)
    assert (recording.lost, steps) == ("", [1])
