"""When a work of an emulated rank is waited for, and how long it lives."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.distributed._functional_collectives import allow_inflight_collective_as_graph_input_ctx

from prismdbg.rank.c10d.watched_work import WatchedWork


class Watcher:
    def __init__(self) -> None:
        self.waits = 0

    def wait(self) -> None:
        self.waits += 1

    def is_there(self) -> bool:
        return True

    def promise(self, keep: Callable[[], None], *, is_seen: bool = False) -> None:
        keep()

    def ends_backward(self) -> None: ...


def test_torch_still_waits_for_what_it_registered() -> None:
    """It takes out only works that were waited for."""
    watcher = Watcher()
    with allow_inflight_collective_as_graph_input_ctx():
        work: Any = WatchedWork(watcher, [])
        seen = weakref.ref(work)
        work.get_future()
        del work
        gc.collect()
        kept: Any = seen()
        assert kept is not None and kept.wait() and watcher.waits == 1
        del kept
    gc.collect()
    assert seen() is None


@pytest.mark.parametrize(("devices", "waits"), [([], 0), ([torch.device("cuda:0")], 1)])
def test_synchronize_puts_streams_behind_it(devices: list[torch.device], waits: int) -> None:
    """There is none on the host, where backends do nothing."""
    watcher = Watcher()
    WatchedWork(watcher, [], devices=devices).synchronize()
    assert watcher.waits == waits
