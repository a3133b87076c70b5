"""One rank whose second thread issues collectives while the first parks it, looks, and lets it go."""

from __future__ import annotations

import threading

import rank
import torch
import torch.distributed as dist
from rank import native, wait_for

issued = 0
stop = threading.Event()


def issue() -> None:
    global issued
    while not stop.is_set():
        dist.all_reduce(torch.ones(4))
        issued += 1


rank.record(event_segment_bytes=64 << 10)
native.window(True, 0, 0)
rank.join()
thread = threading.Thread(target=issue)
thread.start()
for _ in range(5):
    before = issued
    wait_for(lambda: issued >= before + 300, 60, "the thread to issue collectives")  # noqa: B023
    native.park(True)
    wait_for(lambda: native.parked() == 1, 10, "the thread to arrive at the gate")
    assert native.stats()["entering"] == 0
    assert native.in_flight() == []
    at_gate = issued
    native.close_log()
    rank.assert_log_is_closed()
    native.append(7, b'{"kind": "parked", "time_ns": 1}')
    assert issued == at_gate, "a parked thread went on"
    native.reopen_log()
    native.park(False)
stop.set()
thread.join()
assert native.parked() == 0
assert native.stats()["lost"] == ""
rank.report({"issued": issued})
dist.destroy_process_group()
