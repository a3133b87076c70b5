"""What a loop carries in variables from one step to the next is found by its name, unless the state has it."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import IO

import torch

from prismdbg.rank.replay.carried import CarriedVariables

Loop = Callable[[Callable[[], int]], object]


def named_by(loop: Loop, load: Callable[[], None] = lambda: None) -> list[str]:
    """What is named where `loop` calls its restore point."""
    told: list[str] = []

    def restore_point() -> int:
        carried = CarriedVariables(sys._getframe(1))
        load()
        told.extend(carried.not_loaded())
        return 8

    loop(restore_point)
    return told


def ahead(restore_point: Callable[[], int]) -> None:
    step, rate, limit = 0, 0.5, 9
    x, y = torch.ones(1), torch.ones(1)
    batch, seen, names = {"x": x, "y": y}, 5, ["a"]
    step = restore_point() or step
    while step < limit:
        assert batch and names
        rate = 0.5 / step
        x, y = y, x * rate
        batch, names = {"x": x, "y": y}, [*names]
        seen += 1
        step += 1


def test_what_is_read_and_then_assigned_again_is_named() -> None:
    """Not the step, which the call gives; nor what is assigned before it is read, or never; nor what is no data."""
    assert sorted(named_by(ahead)) == ["batch (dict)", "seen (int)", "x (Tensor)", "y (Tensor)"]


def test_what_loading_the_state_has_changed_is_registered() -> None:
    assert sorted(named_by(of_globals)) == ["X (Tensor)", "Y (Tensor)"]
    assert named_by(of_globals, load_x) == ["Y (Tensor)"]


X = Y = torch.ones(1)


def load_x() -> None:
    global X
    X = torch.zeros(1)


def of_globals(restore_point: Callable[[], int]) -> None:
    global X, Y
    for _ in range(restore_point(), 9):
        X, Y = Y, X


class Endless:
    """A loader that is its own iterator."""

    def __next__(self) -> int:
        return 0


def test_an_iterator_that_was_made_before_is_named_and_a_registered_one_is_not() -> None:
    """A loader that gets its place later begins from it only in a new iterator."""
    batches, loader, unused = iter([1, 2]), Endless(), iter([3])
    told: list[str] = []

    def loop(log: IO[str]) -> None:
        mine, own, _ = batches, loader, unused
        told.extend(CarriedVariables(sys._getframe(), [loader]).not_loaded())
        log.write(f"{next(mine)} {next(own)}")

    with Path(os.devnull).open("w") as log:
        loop(log)
    assert told == ["mine (list_iterator)"]


def test_a_frame_without_a_loop_and_no_frame_have_none() -> None:
    assert named_by(lambda restore_point: restore_point()) == []
    assert CarriedVariables(None).not_loaded() == []
