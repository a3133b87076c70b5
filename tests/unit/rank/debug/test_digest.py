"""By what a change is seen: of everything that holds values, and said where it cannot be."""

from __future__ import annotations

import array
import collections
import enum
import sys
from typing import Any

import numpy as np
import pytest
import torch

from prismdbg.errors import UsageError
from prismdbg.model.moment import Moment
from prismdbg.rank.debug.breakpoints import Breakpoints
from prismdbg.rank.debug.digest import digest_of
from prismdbg.rank.debug.gate import Stop
from prismdbg.rank.debug.inspection import evaluate_at


class Mode(enum.Enum):
    TRAIN = {"dropout": True}
    EVAL = {"dropout": False}


class Layers(enum.Flag):
    FIRST = 1
    SECOND = 2


class Config:
    def __init__(self, rate: float) -> None:
        self.rate = rate


FEW, MANY = np.arange(6.0), np.arange(6.0)
MANY[3] = 7


@pytest.mark.parametrize(
    ("value", "same", "other"),
    [
        ({1, 2, "x"}, {"x", 2, 1}, {1, 3, "x"}),
        (frozenset({(1, 2)}), frozenset({(1, 2)}), frozenset({(2, 1)})),
        (collections.deque([1, 2], 5), collections.deque([1, 2], 5), collections.deque([2, 1], 5)),
        (bytearray(b"ab"), bytearray(b"ab"), bytearray(b"ac")),
        (array.array("i", [1, 2]), array.array("i", [1, 2]), array.array("i", [1, 3])),
        (FEW, FEW.copy(), MANY),
        (FEW, FEW.copy(), FEW.reshape(2, 3)),
        (FEW[::2], FEW[::2].copy(), FEW[1::2]),
        (np.float32(2), np.float32(2), np.float32(3)),
        (Mode.TRAIN, Mode.TRAIN, Mode.EVAL),
        (Layers.FIRST | Layers.SECOND, Layers.FIRST | Layers.SECOND, Layers.SECOND),
        (range(3), range(3), range(4)),
        (torch.float32, torch.float32, torch.float64),
        (torch.device("cpu"), torch.device("cpu"), torch.device("meta")),
        ({"seen": {1}, "made": Config(1)}, {"seen": {1}, "made": Config(1)}, {"seen": {2}, "made": Config(1)}),
    ],
)
def test_a_digest_is_of_what_a_value_holds(value: Any, same: Any, other: Any) -> None:
    assert digest_of(value) == digest_of(same) != digest_of(other)
    assert digest_of({"it": value}) == digest_of({"it": same}) != digest_of({"it": other})


@pytest.mark.parametrize("value", [Config(0.1), object(), np.array([Config(1)], dtype=object), digest_of])
def test_what_has_no_digest_is_an_error(value: Any) -> None:
    with pytest.raises(UsageError, match="cannot be seen") as raised:
        digest_of(value)
    assert raised.value.hint


def test_a_breakpoint_on_what_has_no_digest_says_so_once() -> None:
    failed: list[tuple[int, str]] = []
    stops = Breakpoints(lambda number, error: failed.append((number, error)))
    stops.replace([{"kind": "change", "expression": "config", "number": 3}])
    names = {"config": Config(0.1)}
    assert not any(stops.changed(stops.watched[0], names.__getitem__, None) for _ in range(3))
    ((number, error),) = failed
    assert number == 3 and "changes of a test_digest.Config cannot be seen" in error


def test_a_watched_value_without_a_digest_is_shown() -> None:
    stop = Stop("next", Moment(1, 1), {}, sys._getframe(), {})
    config, rate = Config(0.1), 0.1  # noqa: F841  found in this frame
    assert "digest" not in evaluate_at(stop, "config", digest=True)
    assert "digest" in evaluate_at(stop, "rate", digest=True)
