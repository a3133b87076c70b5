"""Issues every kind of collective and reports, by itself, what the log must say of each."""

from __future__ import annotations

import base64
import sys
from collections.abc import Callable, Sequence
from typing import Any

import rank
import torch
import torch.distributed as dist
from rank import RANK, WORLD, native
from torch import Tensor

from prismdbg.rank.c10d import fingerprint

expected: list[dict[str, Any]] = []


def bytes_of(tensors: Sequence[Tensor]) -> str:
    return base64.b64encode(b"".join(bytes(fingerprint.as_bytes(t)) for t in tensors)).decode()


def did(name: str, sent: Sequence[Tensor], call: Callable[[], Any], received: Sequence[Tensor], **more: Any) -> Any:
    """Runs one collective; notes its name, the fingerprint of what goes out and the bytes that come in."""
    value = fingerprint.of(sent) if sent else None
    line = sys._getframe(1).f_lineno
    result = call()
    expected.append({"name": name, "fingerprint": value, "payload": bytes_of(received), "line": line, **more})
    return result


def filled(value: float = 0.0, size: int = 10) -> Tensor:
    return torch.arange(float(size)) + 100 * RANK + value


def collectives() -> None:
    other = 1 - RANK
    x = filled()
    did("all_reduce", [x], lambda: dist.all_reduce(x), [x])
    x = filled()
    did("all_reduce", [x], lambda: dist.all_reduce(x, async_op=True).wait(), [x], is_async=True)
    x = filled()
    future = did("all_reduce", [x], lambda: dist.all_reduce(x, async_op=True).get_future().wait(), [x], is_async=True)
    assert torch.equal(future[0], x)
    gathered = [torch.zeros(10) for _ in range(WORLD)]
    x = filled()
    did("all_gather", [x], lambda: dist.all_gather(gathered, x), gathered)
    pieces, y = list(torch.arange(8.0).chunk(WORLD)), torch.zeros(4)
    did("reduce_scatter", pieces, lambda: dist.reduce_scatter(y, pieces), [y])
    sent, y = [filled(9, 3), filled(5, 3)], [torch.zeros(3), torch.zeros(3)]
    did(
        "all_to_all_single",
        [torch.cat(sent)],
        lambda: dist.all_to_all_single(out, torch.cat(sent)),
        [out := torch.zeros(6)],
    )
    if RANK == 0:
        did("send", [x], lambda: dist.send(x, other, tag=3), [], peer=other, tag=3)
        z = torch.zeros(10)
        did("recv_any_source", [], lambda: dist.recv(z), [z], peer=-1, source=1)
    else:
        z = torch.zeros(10)
        did("recv", [], lambda: dist.recv(z, other, tag=3), [z], peer=other, tag=3)
        did("send", [x], lambda: dist.send(x, other), [], peer=other)
    did("barrier", [], lambda: dist.barrier(), [])
    did("monitored_barrier", [], lambda: dist.monitored_barrier(), [])


def rooted() -> None:
    is_root = RANK == 1
    x = filled()
    did("broadcast", [x] if is_root else [], lambda: dist.broadcast(x, 1), [] if is_root else [x], root=1)
    did("reduce", [x], lambda: dist.reduce(x, 1), [x] if is_root else [], root=1)
    gathered = [torch.zeros(10) for _ in range(WORLD)] if is_root else None
    did("gather", [x], lambda: dist.gather(x, gathered, 1), gathered or [], root=1)
    pieces, y = [filled(i) for i in range(WORLD)] if is_root else None, torch.zeros(10)
    did("scatter", pieces or [], lambda: dist.scatter(y, pieces, 1), [y], root=1)


def unusual_tensors() -> None:
    for dtype in (torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.uint8, torch.int32):
        x = filled(size=13).to(dtype)
        did("all_reduce", [x], lambda x=x: dist.all_reduce(x), [x])
    x = torch.arange(12.0).view(3, 4).t()
    did("broadcast", [x] if RANK == 0 else [], lambda: dist.broadcast(x, 0), [x] if RANK else [], root=0)
    x = torch.empty(0)
    did("all_reduce", [x], lambda: dist.all_reduce(x), [])
    x = torch.tensor([1.0, float("nan") if RANK == 1 else 2.0])
    did("all_reduce", [x], lambda: dist.all_reduce(x), [x], sent_nonfinite=RANK == 1, received_nonfinite=True)
    x = torch.tensor(5.0)
    did("all_reduce", [x], lambda: dist.all_reduce(x, op=dist.ReduceOp.MAX), [x], reduce_op="MAX")


rank.record()
native.window(True, 0, 0)
rank.join()
native.begin_step(0, 1)
collectives()
native.begin_step(1, 1)
rooted()
native.begin_step(2, 1)
unusual_tensors()
assert native.in_flight() == []
assert native.stats()["lost"] == ""
rank.report(expected)
dist.destroy_process_group()
