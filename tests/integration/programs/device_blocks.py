"""A process in which a GPU's allocator is invented: `device_blocks.py CACHE FOLDER`. What is done
to memory of `cuda:0` is told to the tracer as torch's allocator would. Writes what it saw to FOLDER/report.json."""

import json
import sys
import threading
from pathlib import Path

import torch

from prismdbg.rank.native import build as native_build
from prismdbg.rank.tracing import tracer
from prismdbg.rank.tracing.tracer import Event, Filter

CACHE, FOLDER = Path(sys.argv[1]), Path(sys.argv[2])
ALLOCATED, FREED, RESERVED, RELEASED, REFUSED = range(5)
MIB = 1 << 20
GPU = 1

native = native_build.load(CACHE)
tracer.use(native)
seen: list[tuple[str, str, str, int, int]] = []
inside: list[str] = []


def tell(action: int, address: int, size_bytes: int, device: int = GPU) -> None:
    native.trace_device(action, device, address, size_bytes)


class OnGpu(torch.autograd.Function):
    """An operator whose backward runs on the same thread."""

    @staticmethod
    def forward(ctx: object, x: torch.Tensor) -> torch.Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: object, gradient: torch.Tensor) -> torch.Tensor:
        tell(ALLOCATED, 0x7000_0000, 300)
        inside.append("told" if seen else "not yet told")
        return gradient


def heard(event: Event) -> None:
    seen.append((str(event.kind), event.outer_op, event.device, event.size_bytes, event.total_bytes))


def steered(times: int) -> int:
    """Blocks come and go, with Python's lock held, while another thread changes who is told of them."""
    done = threading.Event()

    def steer() -> None:
        while not done.is_set():
            tracer.on_event(lambda _: None, [Filter(size_at_least_bytes=1 << 50)])

    thread = threading.Thread(target=steer, daemon=True)
    thread.start()
    for _ in range(times):
        tell(ALLOCATED, 0x8000_0000, 1)
        tell(FREED, 0x8000_0000, 1)
    done.set()
    thread.join()
    return times


tracer.arm(FOLDER / "trace", cache_dir=CACHE, from_start=True)
kept = torch.ones(1000)
tracer.moved(1, 0)
tell(RESERVED, 0x1000_0000, 2 * MIB)
tell(ALLOCATED, 0x1000_0000, 1000)
tell(ALLOCATED, 0x1000_0400, 500_000)
tell(FREED, 0x1000_0400, 500_000)
tell(FREED, 0x5555_0000, 77)  # never seen
tell(RESERVED, 0x2000_0000, 4 * MIB)
tell(RELEASED, 0x2010_0000, MIB)  # the second of four
tell(ALLOCATED, 0x3000_0000, 10, device=GPU + 1)
tell(REFUSED, 123, 1 << 40)
x = torch.ones(4, requires_grad=True)
loss = OnGpu.apply(x).sum()
tracer.moved(2, 0)
tracer.on_event(heard, [Filter(size_at_least_bytes=200)])
loss.backward()
tracer.on_event(None)
stats = tracer.stats()
found = tracer.find(0x1000_0003)
told = {"stats": stats, "seen": seen, "inside": inside, "kept": kept.nbytes, "found": found.device if found else ""}
told["steered"] = steered(50_000)
(FOLDER / "report.json").write_text(json.dumps(told))
