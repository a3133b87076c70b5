"""Rank 0 is handed over to a replay with one call parked, one wait under way, and works in flight; rank 1 is gone."""

from __future__ import annotations

import os
import threading
from typing import Any

import rank
import torch
import torch.distributed as dist
from rank import RANK, RUN, native, wait_for
from torch import Tensor

from prismdbg.rank.c10d import kernels
from prismdbg.rank.c10d.call import Call
from prismdbg.rank.c10d.works import finished

rescued: list[tuple[int, str]] = []
served: list[str] = []


def rescuer(record_id: int, op: str, outputs: list[Tensor]) -> Any:
    rescued.append((record_id, op))
    for output in outputs:
        output.fill_(42.0)
    return 1 if op == "recv_any_source_" else True


class Peers:
    def collective(self, call: Call, redispatch: Any) -> Any:
        served.append(call.spec.name)
        for output in call.outputs:
            output.fill_(7.0)
        return call.result(finished(call))


def in_thread(target: Any) -> threading.Thread:
    thread = threading.Thread(target=target)
    thread.start()
    return thread


def wait_for_peer_to_end() -> None:
    (RUN / "go").touch()
    wait_for(lambda: (RUN / "gone").exists(), 30, "rank 1 to go")


rank.record()
rank.join()
groups = [dist.new_group([0, 1]) for _ in range(3)]  # a group each: gloo answers in order of issue
if RANK == 1:
    dist.all_reduce(torch.zeros(1))
    wait_for(lambda: (RUN / "go").exists(), 60, "rank 0 to be ready")
    (RUN / "gone").touch()
    os._exit(0)

done = torch.zeros(1)
dist.all_reduce(done)
waited, futured, received = torch.zeros(4), torch.zeros(4), torch.zeros(4)
in_wait = in_thread(lambda: dist.all_reduce(waited, group=groups[0]))
wait_for(lambda: native.in_flight() == [1], 10, "the all_reduce that waits to be issued")
work = dist.all_reduce(futured, async_op=True, group=groups[1])
future = work.get_future()
any_source = dist.irecv(received)
assert native.in_flight() == [1, 2, 3], native.in_flight()

native.park(True)
parked = torch.zeros(4)
at_gate = in_thread(lambda: dist.all_reduce(parked, group=groups[2]))
wait_for(lambda: native.parked() == 1, 10, "the thread to park")
native.close_log()
wait_for_peer_to_end()
wait_for(lambda: native.parked() >= 2, 30, "the broken wait to stop at the gate")
native.handover(rescuer)
kernels.install(Peers())
native.park(False)

in_wait.join(30)
at_gate.join(30)
assert not in_wait.is_alive() and not at_gate.is_alive()
assert waited.tolist() == [42.0] * 4
assert parked.tolist() == [7.0] * 4 and served == ["allreduce_"]
assert future.wait()[0].tolist() == [42.0] * 4
assert work.wait()
any_source.wait()
assert received.tolist() == [42.0] * 4
assert any_source._source_rank() == 1
assert sorted(rescued) == [(1, "allreduce_"), (2, "allreduce_"), (3, "recv_any_source_")], rescued
dist.all_reduce(parked)
assert served == ["allreduce_", "allreduce_"]
os._exit(0)  # the backend's peers are gone: there is nothing to end in order
