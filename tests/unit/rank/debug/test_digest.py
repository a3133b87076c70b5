"""By what a change is seen: of everything that holds values, and said where it cannot be."""

from __future__ import annotations

import array
import collections
import enum
import sys
import tracemalloc
from typing import Any

import numpy as np
import pytest
import torch

from prismdbg.errors import UsageError
from prismdbg.model.moment import Moment
from prismdbg.rank.debug import digest
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
        ({0, 8}, {8, 0}, {0, 9}),  # the first two have other orders
        (frozenset({(1, 2)}), frozenset({(1, 2)}), frozenset({(2, 1)})),
        (collections.deque([1, 2], 5), collections.deque([1, 2], 5), collections.deque([2, 1], 5)),
        (bytearray(b"ab"), bytearray(b"ab"), bytearray(b"ac")),
        (array.array("i", [1, 2]), array.array("i", [1, 2]), array.array("i", [1, 3])),
        (FEW, FEW.copy(), MANY),
        (FEW, FEW.copy(), FEW.reshape(2, 3)),
        (FEW[::2], FEW[::2].copy(), FEW[1::2]),
        (np.asfortranarray(FEW.reshape(2, 3)), FEW.reshape(2, 3), MANY.reshape(2, 3)),
        (FEW[:0], FEW[:0].copy(), FEW[:0].reshape(0, 2)),
        (FEW.astype("M8[s]"), FEW.astype("M8[s]"), MANY.astype("M8[s]")),
        (np.float32(2), np.float32(2), np.float32(3)),
        (np.zeros(2, dtype=[]), np.zeros(2, dtype=[]), np.zeros(3, dtype=[])),
        (Mode.TRAIN, Mode.TRAIN, Mode.EVAL),
        (Mode.TRAIN, Mode.TRAIN, {"dropout": True}),
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


def test_an_array_of_the_programs_own_class_has_no_say() -> None:
    class Own(np.ndarray):  # type: ignore[type-arg]
        @property
        def itemsize(self) -> int:
            raise AssertionError("the program ran")

    assert digest_of(FEW.view(Own)) == digest_of(FEW)


def test_no_array_is_copied_whole() -> None:
    size_bytes = 16 * digest.CHUNK_BYTES
    flat = np.zeros(size_bytes, "u1")
    for value in (flat, flat.reshape(16, -1).T, array.array("b", bytes(size_bytes)), bytearray(size_bytes)):
        tracemalloc.start()
        digest_of(value)
        (_, peak_bytes), _ = tracemalloc.get_traced_memory(), tracemalloc.stop()
        assert peak_bytes < size_bytes / 2


def test_every_chunk_of_an_array_counts() -> None:
    values = np.arange(3 * digest.CHUNK_BYTES, dtype="u1")
    other = values.copy()
    other[-1] ^= 1
    assert digest_of(values) != digest_of(other)
    assert digest_of(array.array("B", values.tobytes())) != digest_of(array.array("B", other.tobytes()))


@pytest.mark.parametrize("value", [np.zeros(300), array.array("d", bytes(2400)), bytearray(2400), b"x" * 2400])
def test_what_is_too_large_to_be_read_at_each_collective_is_an_error(
    value: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(digest, "MAX_BYTES", 2399)
    for held in (value, [value]):
        with pytest.raises(UsageError, match="larger than 2399 B") as raised:
            digest_of(held)
        assert "slice" in raised.value.hint
    assert digest_of(value[:10])


def test_a_set_has_no_more_parts_than_a_list(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a set all parts are needed before the first counts."""
    looked: list[object] = []
    monkeypatch.setattr(digest, "MAX_PARTS", 50)
    monkeypatch.setattr(digest, "elements", lambda value: looked.append(value) or iter(value))
    with pytest.raises(UsageError, match="more than 50 values"):
        digest_of(set(range(51)))
    assert not looked


@pytest.mark.parametrize("fails", [RuntimeError("deque mutated during iteration"), MemoryError("no room")])
@pytest.mark.parametrize("name", ["digest_of", "evaluate"])
def test_what_fails_while_a_change_is_looked_for_is_told_and_never_raised(
    fails: Exception, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(*_: object) -> str:
        raise fails

    monkeypatch.setattr(f"prismdbg.rank.debug.breakpoints.{name}", failing)
    failed: list[tuple[int, str]] = []
    stops = Breakpoints(lambda number, error: failed.append((number, error)))
    stops.replace([{"kind": "change", "expression": "queue", "number": 3}])
    names = {"queue": collections.deque([1])}
    assert not any(stops.changed(stops.watched[0], names.__getitem__, None) for _ in range(3))
    assert failed == [(3, f"{type(fails).__name__}: {fails}")]


def test_a_watched_value_that_cannot_be_read_now_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(_: object) -> str:
        raise RuntimeError("deque mutated during iteration")

    monkeypatch.setattr("prismdbg.rank.debug.inspection.digest_of", failing)
    stop = Stop("next", Moment(1, 1), {}, sys._getframe(), {})
    rate = 0.1  # noqa: F841  found in this frame
    assert evaluate_at(stop, "rate", digest=True) == evaluate_at(stop, "rate")


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
