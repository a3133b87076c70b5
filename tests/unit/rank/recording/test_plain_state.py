"""Training state as plain values and tensors: what is packed is unpacked the same, and nothing else is accepted."""

from __future__ import annotations

import json
import math
import random
from collections import Counter, OrderedDict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from prismdbg.capsule.safetensors import read_header
from prismdbg.errors import CapsuleError, UsageError
from prismdbg.rank.recording import random_state
from prismdbg.rank.recording.plain_state import Packer, Unpacker
from prismdbg.rank.recording.state_staging import Staging
from prismdbg.rank.replay.from_state import Tensors


def there_and_back(value: Any) -> Any:
    packer = Packer()
    packed = json.loads(json.dumps(packer.pack(value, "x"), allow_nan=False))
    return Unpacker(lambda name: packer.tensors[name].clone()).unpack(packed)


@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        1 << 70,
        -(1 << 53) - 1,
        0.1,
        math.inf,
        "text",
        b"",
        b"\x00\xff",
        (1, (2.5, [])),
        {1: "a", "1": "b", None: [], 0: 1.5},
        Counter({3: 2}),
        {"a", "b"},
        torch.bfloat16,
        torch.device("cpu"),
    ],
)
def test_what_is_packed_is_unpacked_the_same(value: Any) -> None:
    again = there_and_back(value)
    assert again == value and type(again) is type(value)


def test_not_a_number_comes_back() -> None:
    assert math.isnan(there_and_back([math.nan])[0])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64, torch.int64, torch.bool, torch.uint8])
@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 0, 4), (2, 3)])
def test_tensors_come_back_bit_for_bit(dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    tensor = (torch.rand(shape) * 7).to(dtype)
    again = there_and_back({"t": tensor, "again": tensor})
    assert torch.equal(again["t"], tensor) and again["again"].dtype is dtype


def test_values_of_numpy_come_back() -> None:
    again = there_and_back([np.arange(6).reshape(2, 3), np.float32(0.1), np.bool_(True)])
    assert np.array_equal(again[0], np.arange(6).reshape(2, 3))
    assert [type(value) for value in again[1:]] == [np.float32, np.bool_] and again[1] == np.float32(0.1)


def test_an_optimizer_and_its_schedule_come_back() -> None:
    model = torch.nn.Linear(3, 3)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    schedule = torch.optim.lr_scheduler.MultiStepLR(optimizer, [2, 4])
    model(torch.ones(1, 3)).sum().backward()
    optimizer.step()
    schedule.step()
    state = there_and_back({"o": optimizer.state_dict(), "s": schedule.state_dict(), "m": model.state_dict()})
    assert state["s"] == schedule.state_dict() and isinstance(model.state_dict(), OrderedDict)
    assert state["o"]["param_groups"] == optimizer.state_dict()["param_groups"]
    assert torch.equal(state["o"]["state"][0]["exp_avg"], optimizer.state_dict()["state"][0]["exp_avg"])


class Thing:
    pass


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ({"a": [Thing()]}, "x.a.0 is of type .*Thing, which cannot be written"),
        ({(1, 2): 0}, "x has a key of type tuple"),
        (torch.eye(2).to_sparse(), "x is a Tensor of layout torch.sparse_coo"),
        (torch.zeros(1, dtype=torch.complex64), "x is a tensor of torch.complex64"),
        (np.array([Thing()]), "x is a numpy value of type object"),
    ],
)
def test_what_is_not_plain_is_named(value: Any, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        Packer().pack(value, "x")


def test_what_nests_without_end_is_refused() -> None:
    loop: list[Any] = []
    loop.append(loop)
    with pytest.raises(UsageError, match="nested more than"):
        Packer().pack(loop, "x")


def nested(depth: int) -> Any:
    return ["list", [nested(depth - 1)]] if depth else 0


@pytest.mark.parametrize(
    "packed",
    [
        {},
        [],
        ["pickle", "x"],
        ["dict", 7],
        ["dict", [[["list", []], 1]]],
        ["dict", [[1]]],
        ["int", "9x"],
        ["tensor"],
        ["tensor", "none", "cpu"],
        ["array", "t", [3, 3]],
        ["bytes", "t", "many"],
        ["dtensor", "t", [[0], []], "(Shard(dim=0),)", [1], [1]],
        ["dtype", "__import__"],
        ["device", "moon:1"],
        [["list"], []],
        nested(200),
    ],
)
def test_what_no_packer_wrote_is_refused(packed: Any) -> None:
    with pytest.raises(CapsuleError, match="cannot be read"):
        Unpacker({"t": torch.ones(4)}.__getitem__).unpack(packed)


def test_a_staged_copy_is_what_the_tensors_were(tmp_path: Path) -> None:
    wide, narrow, turned = torch.rand(3), torch.arange(5, dtype=torch.uint8), torch.rand(4, 2).t()
    before = turned.clone()
    staging = Staging()
    staging.copy({"narrow": narrow, "wide": wide, "turned": turned, "none": torch.empty(0, 2)})
    turned.zero_()
    staging.write(tmp_path / "t")
    parts, _ = read_header(tmp_path / "t")
    assert parts.keys() == {"narrow", "wide", "turned", "none"}
    tensors = Tensors(tmp_path / "t")
    assert torch.equal(tensors.new("turned"), before) and torch.equal(tensors.new("narrow"), narrow)
    assert tensors.new("none").shape == (0, 2)
    with pytest.raises(CapsuleError, match="has no tensor 'other'"):
        tensors.new("other")


def test_random_generators_go_on_from_where_they_were() -> None:
    np.random.standard_normal()  # one of a pair is kept for the next draw
    random.gauss(0, 1)
    state = json.loads(json.dumps(random_state.read()))

    def drawn() -> list[float]:
        return [
            torch.rand(1).item(),
            random.random(),
            random.gauss(0, 1),
            np.random.rand(),
            np.random.standard_normal(),
        ]

    first = drawn()
    random_state.put_back(state)
    assert drawn() == first
