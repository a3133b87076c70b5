"""What the program registers gets its recorded state."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torchdata.nodes import IterableWrapper
from torchdata.nodes import Loader as NodesLoader
from torchdata.stateful_dataloader import StatefulDataLoader

from prismdbg.capsule.safetensors import header_of, lay
from prismdbg.capsule.state_snapshot import TENSORS
from prismdbg.rank.recording.plain_state import DTYPE_NAMES, Packer
from prismdbg.rank.replay.from_state import _Restorer


@pytest.mark.filterwarnings("ignore:'set_vital' is deprecated")
def test_a_loader_that_had_not_begun_begins_at_the_beginning(tmp_path: Path) -> None:
    samples = list(range(9))
    loaders = {
        "stateful": StatefulDataLoader(samples, batch_size=None),
        "nodes": NodesLoader(IterableWrapper(samples)),
    }
    (tmp_path / TENSORS).write_bytes((2).to_bytes(8, "little") + b"{}")
    restorer = _Restorer.__new__(_Restorer)
    vars(restorer).update(_folder=tmp_path, _snapshot=SimpleNamespace(objects=dict.fromkeys(loaders)))
    as_made = {name: dict(vars(loader)) for name, loader in loaders.items()}
    restorer._load(dict(loaders))
    assert {name: vars(loader) for name, loader in loaders.items()} == as_made
    assert [list(loader) for loader in loaders.values()] == [samples, samples]


def test_only_what_said_something_is_given_it(tmp_path: Path) -> None:
    given: list[object] = []
    thing = SimpleNamespace(state_dict=dict, load_state_dict=given.append)
    (tmp_path / TENSORS).write_bytes((2).to_bytes(8, "little") + b"{}")
    restorer = _Restorer.__new__(_Restorer)
    vars(restorer).update(_folder=tmp_path, _snapshot=SimpleNamespace(objects={"place": 7, "loader": None}))
    restorer._load({"place": thing, "loader": thing})
    assert given == [7]


class Statistics(torch.optim.Optimizer):
    """Keeps float32 of parameters of any type, as transformers' Adafactor does."""

    def __init__(self, parameters: Any) -> None:
        super().__init__(parameters, {})

    def step(self, closure: Any = None) -> None:
        for group in self.param_groups:
            for number, parameter in enumerate(group["params"]):
                self.state[parameter] = {
                    "step": 3,
                    "mean": torch.full((2,), 1 + 2.0**-20),
                    "rank": torch.tensor(number),
                }


def test_an_optimizer_s_state_keeps_its_types(tmp_path: Path) -> None:
    """torch gives a state of floating numbers the type of its parameter."""
    recorded, replayed = (
        Statistics([{"params": [torch.nn.Parameter(torch.ones(2, dtype=torch.bfloat16))]} for _ in range(2)])
        for _ in range(2)
    )
    recorded.step()
    packer = Packer()
    packed = packer.pack(recorded.state_dict(), "optimizer")
    parts = lay((name, DTYPE_NAMES[t.dtype], tuple(t.shape)) for name, t in packer.tensors.items())
    data = b"".join(bytes(packer.tensors[part.name].reshape(-1).view(torch.uint8).tolist()) for part in parts)
    (tmp_path / TENSORS).write_bytes(header_of(parts) + data)
    restorer = _Restorer.__new__(_Restorer)
    vars(restorer).update(_folder=tmp_path, _snapshot=SimpleNamespace(objects={"optimizer": packed}))
    restorer._load({"optimizer": replayed})  # type: ignore[dict-item]
    for old, new in zip(recorded.state.values(), replayed.state.values(), strict=True):
        assert old.keys() == new.keys() and new["mean"].dtype == torch.float32
        assert all(torch.equal(torch.as_tensor(old[name]), torch.as_tensor(new[name])) for name in old)
