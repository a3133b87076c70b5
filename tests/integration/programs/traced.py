"""A process that traces itself: `traced.py CACHE FOLDER PART`. Writes what it saw to FOLDER/report.json."""

import contextlib
import gc
import json
import os
import resource
import shutil
import signal
import sys
from pathlib import Path

import torch
import torch.nn.functional as F  # noqa: N812
from torch import nn

from prismdbg.rank.program.isolation import quiet
from prismdbg.rank.tracing import tracer
from prismdbg.rank.tracing.tracer import Event, Filter

CACHE, FOLDER = Path(sys.argv[1]), Path(sys.argv[2])
FLOATS = 1000
KEPT: list[torch.Tensor] = []


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(64)
        self.up = nn.Linear(64, 256)
        self.down = nn.Linear(256, 64)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(F.gelu(self.up(self.norm(x))))


class Trainer:
    def __init__(self) -> None:
        torch.manual_seed(0)
        self.model = nn.Sequential(Block(), Block(), nn.Linear(64, 1000))
        self.optimizer = torch.optim.AdamW(self.model.parameters(), 1e-3)
        self.x, self.y = torch.randn(128, 64), torch.randint(0, 1000, (128,))

    def step(self) -> None:
        loss = F.cross_entropy(self.model(self.x), self.y)  # the peak of a step's forward half
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()

    def held_bytes(self) -> int:
        state = [t for values in self.optimizer.state.values() for t in values.values()]
        return sum(t.untyped_storage().nbytes() for t in [*self.model.parameters(), *state, self.x, self.y])


def arm(name: str = "trace") -> tracer.Armed:
    return tracer.arm(FOLDER / name, cache_dir=CACHE)


def profiled() -> dict[str, object]:
    """One step under torch.profiler and the tracer at once."""
    from torch.profiler import ProfilerActivity, profile

    trainer = Trainer()
    trainer.step()
    gc.collect()
    armed = arm()
    tracer.moved(1, 0)
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        trainer.step()
    tracer.moved(2, 0)
    totals: list[int] = []

    def walk(events: list[object]) -> None:
        for event in events:
            if type(event.extra_fields).__name__ == "_ExtraFields_Allocation":
                totals.append(event.extra_fields.total_allocated)
            walk(event.children)

    walk(profiler.profiler.kineto_results.experimental_event_tree())
    return {
        "peak_bytes": max(totals),
        "events": len(totals),
        "before_bytes": armed.before_bytes,
        "held_bytes": trainer.held_bytes(),
    }


def older() -> dict[str, object]:
    """Blocks that were there before the trace are known, and freed unharmed."""
    trainer = Trainer()
    trainer.step()
    gc.collect()
    held = trainer.held_bytes()
    weight = trainer.model[2].weight.data_ptr()
    armed = arm()
    found = tracer.find(weight + 8)
    trainer.step()
    grown = tracer.allocated()
    trainer.optimizer.state.clear()
    del trainer
    gc.collect()
    return {
        "held_bytes": held,
        "before_bytes": armed.before_bytes,
        "found": [found.is_before, found.size_bytes],
        "after_a_step": grown,
        "at_the_end": tracer.allocated(),
        "gone": tracer.find(weight) is None,
    }


def hidden() -> dict[str, object]:
    """A block that autograd alone holds is in no sum; the bound holds it."""
    x, labels = torch.ones(FLOATS, FLOATS, requires_grad=True), torch.zeros(FLOATS, dtype=torch.int64)
    loss = F.cross_entropy(x, labels)  # saves its logarithms, which no Python ever saw
    armed = arm()
    return {
        "before_bytes": armed.before_bytes,
        "held_bytes": sum(t.untyped_storage().nbytes() for t in (x, labels, loss)),
        "hidden_bytes": x.untyped_storage().nbytes(),
    }


def ended() -> dict[str, object]:
    """What is let go of after the program's end is no part of the trace."""
    tracer.arm(FOLDER / "trace", cache_dir=CACHE, from_start=True)
    KEPT.append(torch.ones(FLOATS))
    tracer.ended()
    KEPT.clear()
    return {"allocated": tracer.allocated()}


def told() -> dict[str, object]:
    """Filters, and what the debugger's own work leaves behind: nothing."""
    arm()
    tracer.moved(3, 7)
    events: list[Event] = []

    def happened(event: Event) -> None:
        torch.ones(FLOATS)  # what a callback does is not the program's
        events.append(event)

    def heard(*filters: Filter) -> list[list[object]]:
        events.clear()
        tracer.on_event(happened, filters)
        kept = torch.ones(FLOATS)
        kept = kept * kept
        kept = kept + kept
        del kept
        tracer.on_event(None)
        return [[str(e.kind), e.op, str(e.moment), e.size_bytes, list(e.matched)] for e in events]

    now = tracer.allocated()
    report: dict[str, object] = {
        "every": heard(Filter(every=True)),
        "large": heard(Filter(size_at_least_bytes=4 * FLOATS)),
        "above": heard(Filter(total_above_bytes=now + 4 * FLOATS)),
        "named": heard(Filter(op="mul"), Filter(op="aten::add")),
    }
    here = tracer.moment()
    events.clear()
    report["at"] = heard(Filter(at=type(here)(here.step, here.collective, here.op + 2)))
    backward: list[str] = []
    tracer.on_event(lambda event: backward.append(event.outer_op), [Filter(every=True)])
    torch.ones(4, requires_grad=True).exp().sum().backward()
    tracer.on_event(None)
    report["backward"] = [op for op in backward if "Backward" in op]
    before = {name: tracer.stats()[name] for name in ("moment", "records", "allocated", "peak")}
    with quiet():
        torch.rand(FLOATS).sum().item()
    report["quiet"] = before == {name: tracer.stats()[name] for name in before}
    return report


def under_a_mode() -> dict[str, object]:
    """A step of an optimizer, with and without a dispatch mode: its hooks make operators that nobody observes."""
    from torch.utils._python_dispatch import TorchDispatchMode

    class Passes(TorchDispatchMode):  # type: ignore[misc]
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
            return func(*args, **(kwargs or {}))

    trainer = Trainer()
    trainer.step()
    arm()
    counts = []
    for step, mode in ((1, contextlib.nullcontext()), (2, Passes())):
        F.cross_entropy(trainer.model(trainer.x), trainer.y).backward()
        tracer.moved(step, 0)
        with mode:
            trainer.optimizer.step()
        counts.append(tracer.op_count())
    return {"operators": counts}


def files() -> dict[str, object]:
    """Closed as for a checkpoint, opened again; a child that is forked meanwhile; a disk that gets full."""
    arm()
    kept = [torch.ones(FLOATS)]
    tracer.close_files()
    kept.append(torch.ones(FLOATS))
    mapped_when_closed = str(FOLDER) in Path("/proc/self/maps").read_text()
    tracer.reopen_files()
    child = os.fork()
    if child == 0:
        torch.ones(FLOATS)
        kept.clear()
        os._exit(3 if tracer.is_armed() else 0)
    _, status = os.waitpid(child, 0)
    closed = tracer.stats()["records"]
    tracer.disarm()
    torch.ones(FLOATS)
    arm("small")
    tracer.moved(1, 0)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, resource.RLIM_INFINITY))
    for _ in range(25000):  # three records each: more than a segment holds
        torch.ones(1)
    return {
        "mapped_when_closed": mapped_when_closed,
        "records": closed,
        "child": os.waitstatus_to_exitcode(status),
        "lost": tracer.stats()["lost"],
        "still_counted": tracer.op_count(),
    }


def carried() -> dict[str, object]:
    """As in a restored process: its trace is closed, and goes over into a new one."""
    arm()
    tracer.moved(1, 2)
    KEPT.append(torch.ones(FLOATS))
    tracer.close_files()
    KEPT.append(torch.zeros(FLOATS))
    arm("again")
    tracer.moved(5, 0)
    KEPT.append(torch.ones(FLOATS))
    KEPT.pop(0)
    return {"allocated": tracer.allocated()}


def cannot_reopen() -> dict[str, object]:
    """Its files are gone when it is to go on, or no descriptor is left, or one of them is cut before it is closed."""
    arm()
    tracer.close_files()
    shutil.rmtree(FOLDER / "trace")
    KEPT.append(torch.ones(FLOATS))
    tracer.reopen_files()
    lost = [tracer.stats()["lost"]]
    arm("second")
    tracer.close_files()
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, limits[1]))
    KEPT.append(torch.ones(FLOATS))
    tracer.reopen_files()
    resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    lost.append(tracer.stats()["lost"])
    arm("third")
    KEPT.append(torch.ones(FLOATS))
    os.truncate(FOLDER / "third" / "memory.00000.seg", 0)
    tracer.close_files()
    lost.append(tracer.stats()["lost"])
    arm("last")
    return {"lost": lost, "allocated": tracer.allocated()}


def killed() -> dict[str, object]:
    """Dies in the midst of it."""
    arm()
    kept = []
    for step in range(1, 4):
        tracer.moved(step, 0)
        kept += [torch.ones(FLOATS) for _ in range(10)]
    (FOLDER / "report.json").write_text(json.dumps(tracer.stats()))
    os.kill(os.getpid(), signal.SIGKILL)
    return {}


def capped() -> dict[str, object]:
    """A program that goes on with less after it ran out of memory; what the debugger allocates is let through."""
    arm()
    tracer.moved(2, 1)
    held = tracer.allocated()
    tracer.cap(held + 10 * 4 * FLOATS, "Look there.")
    kept = torch.ones(8 * FLOATS)
    try:
        torch.ones(4 * FLOATS)
    except torch.OutOfMemoryError as error:
        raised = [isinstance(error, RuntimeError), str(error)]
    with quiet():
        unseen = torch.ones(100 * FLOATS)
    kept = torch.ones(2 * FLOATS)
    kept = torch.ones(4 * FLOATS)
    tracer.cap(0, "")
    more = torch.ones(100 * FLOATS)
    return {
        "raised": raised,
        "refused": tracer.stats()["refused"],
        "allocated": tracer.allocated() - held,
        "kept": kept.numel() + more.numel(),
        "unseen": unseen.numel(),
    }


def missing() -> dict[str, object]:
    return {"why": tracer.unavailable(FOLDER)}


report = globals()[sys.argv[3]]()
(FOLDER / "report.json").write_text(json.dumps(report))
os._exit(0)  # what is freed while Python ends is not of interest
