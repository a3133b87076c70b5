"""What a recorded rank notes of a tracker's run."""

from __future__ import annotations

import pickle
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from prismdbg.rank.recording.inputs import tracker_runs


@pytest.fixture(autouse=True)
def _fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracker_runs, "_waiting", [])
    monkeypatch.setattr(tracker_runs, "_listener", None)


class Run(SimpleNamespace):
    """One that is offline warns when it is asked for its URL."""

    @property
    def url(self) -> str:
        assert not self.offline
        return "https://host/run"


def started(*runs: Any) -> list[Any]:
    """What a program's calls return, of which the first is before the rank has a log."""
    told: list[Any] = []
    left = iter(runs)
    wandb = SimpleNamespace(init=lambda **given: next(left))
    tracker_runs.watch(wandb)
    assert wandb.init(project="mine") is runs[0]
    tracker_runs.listen(told.append)
    for run in runs[1:]:
        assert wandb.init() is run
    return told


def test_each_run_is_told_in_order() -> None:
    first = Run(id="abc", name=None, step=0, resumed=False, dir="/run", config={"lr": 1}, offline=True)
    assert started(first, Run(id="def", offline=False)) == [
        {"id": "abc", "name": None, "step": 0, "resumed": False, "dir": "/run", "url": None},
        {"id": "def", "url": "https://host/run"},
    ]


def test_values_that_are_no_plain_ones_are_left_out() -> None:
    assert started(Run(id=object(), name="n", offline=None), None) == [{"name": "n", "url": "https://host/run"}, {}]


def test_a_start_can_be_pickled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Which names it by the module in which it is defined."""
    within = ModuleType("wandb_init")
    exec("def init():\n    return None", vars(within))
    monkeypatch.setitem(sys.modules, "wandb_init", within)
    wandb = SimpleNamespace(init=within.init)
    tracker_runs.watch(wandb)
    assert pickle.loads(pickle.dumps(wandb.init)) is wandb.init  # noqa: S301
