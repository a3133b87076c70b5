"""What the program registers gets its recorded state."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
from torchdata.nodes import IterableWrapper
from torchdata.nodes import Loader as NodesLoader
from torchdata.stateful_dataloader import StatefulDataLoader

from prismdbg.capsule.state_snapshot import TENSORS
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
