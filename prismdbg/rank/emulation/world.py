"""What a program finds in place of a world: a store that all have been at, no rendezvous, and an end of its steps."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import torch.distributed as dist
from torch.distributed import distributed_c10d as c10d

from prismdbg.capsule.log.format import StepSource
from prismdbg.rank.emulation import fake_world
from prismdbg.rank.emulation.store import EmulatedStore, StoreState


def install_world(state: StoreState, real: fake_world.Real | None = None) -> None:
    """From here on torch.distributed needs nobody else, but for the groups of `real`."""
    fake_world.install(lambda: EmulatedStore(state), real)

    def lone_store(*_: Any, **__: Any) -> EmulatedStore:
        return EmulatedStore(state)

    for module in (dist, c10d):
        module.TCPStore = lone_store
    os.environ.pop("TORCH_DIST_INIT_BARRIER", None)


def refuse_ranks() -> None:
    """In a process that the emulated rank has started: ranks of its own would wait for the whole world."""

    def init_process_group(*_: Any, **__: Any) -> None:
        raise RuntimeError(
            "prismdbg: the emulated program starts its ranks itself (torch.multiprocessing.spawn, a launcher), which "
            "`emulate` cannot do: give the script that reads RANK and WORLD_SIZE from its environment, or torchrun's "
            "command line"
        )

    for module in (dist, c10d):
        module.init_process_group = init_process_group


class StepLimit:
    """Ends the program at a step's boundary, as `sys.exit(0)` there would. steps: 0 for no limit. `at_the_end`: called
    before that; what the program does on its way out belongs to no step."""

    def __init__(self, steps: int, at_the_end: Callable[[], None]) -> None:
        self._steps = steps
        self._at_the_end = at_the_end

    def is_reached(self, step: int) -> bool:
        return 0 < self._steps <= step

    def __call__(self, step: int, _: StepSource) -> None:
        if self.is_reached(step):
            self._at_the_end()
            raise SystemExit(0)
