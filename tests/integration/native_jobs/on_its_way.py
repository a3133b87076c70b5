"""One rank whose second thread has passed the gate and is not recorded yet while the first one parks."""

from __future__ import annotations

import threading

import rank
import torch
import torch.distributed as dist
from rank import describe, native, wait_for

went_on = threading.Event()


def hold(group: object) -> None:
    """Called on the issuing thread before the group's first record, as the hashing of its input is."""
    assert went_on.wait(60)
    describe(group)


rank.record()
rank.join()
native.on_group(hold)
thread = threading.Thread(target=lambda: dist.all_reduce(torch.ones(4)))
thread.start()
wait_for(lambda: native.stats()["entering"] == 1, 30, "the thread to pass the gate")
native.park(True)
assert (native.stats()["entering"], native.parked(), native.in_flight()) == (1, 0, [])
went_on.set()
wait_for(lambda: native.stats()["entering"] == 0, 30, "the thread to come to its record")
assert native.stats()["events"] == 1
native.park(False)
thread.join()
rank.report({})
dist.destroy_process_group()
