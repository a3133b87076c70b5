"""Rank 0 posts a receive, then has its window switched on, or its log closed, before rank 1 sends. `refused`: what it
receives meanwhile finds no file when the log is opened again."""

from __future__ import annotations

import rank
import torch
import torch.distributed as dist
from rank import ARGUMENTS, FOLDER, RANK, native

rank.record()
rank.join()
if RANK == 0:
    x, y = torch.zeros(1000), torch.zeros(10)
    if ARGUMENTS[0] != "switched":
        native.window(True, 0, 0)
    work = dist.irecv(x, 1, tag=1)
    assert work is not None
    assert native.in_flight() == [0]
    if ARGUMENTS[0] == "switched":
        native.window(True, 0, 0)
    else:
        native.close_log()
        rank.assert_log_is_closed()
        size = (FOLDER / "events.00000.seg").stat().st_size
    dist.send(y, 1, tag=2)
    work.wait()
    assert native.in_flight() == []
    if ARGUMENTS[0] != "switched":
        assert (FOLDER / "events.00000.seg").stat().st_size == size
        native.append(7, b'{"kind": "held", "time_ns": 0}')
        if ARGUMENTS[0] == "refused":
            (FOLDER / "payload.00000.seg").touch()
        native.reopen_log()
        dist.all_reduce(y)
    else:
        dist.all_reduce(y)
    assert native.stats()["lost"].startswith("payloads" if ARGUMENTS[0] == "refused" else "")
    assert bool(native.stats()["lost"]) == (ARGUMENTS[0] == "refused")
else:
    z = torch.zeros(10)
    dist.recv(z, 0, tag=2)
    dist.send(torch.arange(1000.0), 0, tag=1)
    dist.all_reduce(z)
dist.destroy_process_group()
