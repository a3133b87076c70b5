"""What a program holds beside its registered state is found by its name."""

from __future__ import annotations

import sys
import weakref

import pytest
import torch

from prismdbg.rank.replay import unregistered as module
from prismdbg.rank.replay.unregistered import unregistered


class Wrapped(torch.nn.Module):
    def __init__(self, module: torch.nn.Module) -> None:
        super().__init__()
        self.module = module


def test_only_what_is_no_part_of_registered_objects_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "own_frames", lambda frame: [frame])
    monkeypatch.setattr(module.gc, "get_objects", list)
    raw = torch.nn.Linear(2, 2)
    model, loss, other = Wrapped(raw), torch.nn.MSELoss(), torch.nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1)
    combined = torch.optim.lr_scheduler.ChainedScheduler([schedule])
    draws = torch.Generator()
    registered = {"model": model, "optimizer": optimizer, "combined": combined}
    found = unregistered(registered, sys._getframe())
    assert set(found) == {"other (Linear)", "draws (Generator)"}, (raw, loss, other, draws)
    del registered["combined"]
    assert "schedule (StepLR)" in unregistered(registered, sys._getframe())


def test_an_optimizer_is_not_registered_with_its_schedule(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not by any of a sequence of schedules either."""
    monkeypatch.setattr(module, "own_frames", lambda frame: [frame])
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=0.1)
    parts = [torch.optim.lr_scheduler.StepLR(optimizer, 1) for _ in range(2)]
    schedule = torch.optim.lr_scheduler.SequentialLR(optimizer, parts, milestones=[2])
    assert unregistered({"schedule": schedule}, sys._getframe())[0] == "optimizer (SGD)"


def test_a_schedule_that_has_no_name_is_found_by_its_type() -> None:
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=0.1)
    others = [torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=0.1) for _ in range(30)]
    held = [[torch.optim.lr_scheduler.StepLR(optimizer, 1)]]
    found = unregistered({"optimizer": optimizer}, None)
    assert "an object of type StepLR" in found and found.count("an object of type SGD") == 1, (held, others)


def test_what_the_program_drops_is_not_kept_and_any_key_of_its_globals_is_passed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "own_frames", lambda frame: [frame])
    monkeypatch.setitem(globals(), 7, "a key that is no name")

    def of_program() -> bool:
        dropped = torch.ones(4)
        seen = weakref.ref(dropped)
        unregistered({}, sys._getframe())
        del dropped
        return seen() is None

    assert of_program()
