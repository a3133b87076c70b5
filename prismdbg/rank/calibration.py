"""Measures collectives: torchrun starts it on every rank of `prismdbg calibrate`; rank 0 writes what all of them took.
`at_once` measures the rest.

In each round every operation, group and size comes once, in an order that changes, each after a barrier of all.
A time goes from the moment the last member came to the moment the last member was through.
"""

from __future__ import annotations

import ctypes
import hashlib
import json
import os
import random
import signal
import socket
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from statistics import median
from typing import Any

from prismdbg.rank.interference import InterferenceProbe

ITEM_BYTES = 4
SMALL_BYTES = 1 << 20  # up to here a size is measured more than once in a round
REPEATS = 3
WAIT_S = 60.0
LATE_S = 0.03  # so much later a receiver comes, to see whether its sender waits for it
_PR_SET_PDEATHSIG = 1


class CannotMeasure(Exception):
    """`hint` says what to do."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message)
        self.hint = hint


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """`groups`: ranks of a node that measure together. nodes: how many take part. pin: a processor for each rank.

    at_once: the measures of `at_once` that are taken, each for at_once_s. bound_s: for the collectives.
    """

    backend: str
    ops: tuple[str, ...]
    groups: tuple[int, ...]
    sizes: tuple[int, ...]
    nodes: int
    rounds: int
    bound_s: float
    pin: bool
    result: str
    at_once: tuple[str, ...] = ()
    at_once_s: float = 0.0

    @classmethod
    def load(cls, path: Path) -> Plan:
        held = json.loads(path.read_text())
        return cls(**{**held, **{name: tuple(held[name]) for name in ("ops", "groups", "sizes", "at_once")}})

    @property
    def digest(self) -> int:
        """Of all that must be the same on every node."""
        measured = (self.backend, self.ops, self.groups, self.sizes, self.at_once)
        parts = (*measured, self.nodes, self.rounds, self.bound_s, self.at_once_s, self.pin)
        return int.from_bytes(hashlib.sha256(repr(parts).encode()).digest()[:7], "big")

    def group_ranks(self, per_node: int) -> list[tuple[int, ...]]:
        """In the first node; then one of each node, and all ranks of two and more nodes."""
        found = [tuple(range(size)) for size in self.groups]
        for nodes in range(2, self.nodes + 1):
            found += [tuple(range(0, nodes * per_node, per_node)), tuple(range(nodes * per_node))]
        return list(dict.fromkeys(found))


@dataclass(slots=True, kw_only=True)
class Case:
    """`spans`: start and end on this rank, once a measurement; nothing where it takes no part."""

    op: str
    ranks: tuple[int, ...]
    size_bytes: int
    run: Callable[[], None] | None = None
    spans: list[tuple[int, int]] = field(default_factory=list)

    @property
    def repeats(self) -> int:
        return REPEATS if self.size_bytes <= SMALL_BYTES else 1


def main(arguments: Sequence[str]) -> int:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL))  # torchrun gives its workers sessions of their own
    plan = Plan.load(Path(arguments[0]))
    processors = len(os.sched_getaffinity(0))
    if plan.pin:
        allowed = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {allowed[int(os.environ["LOCAL_RANK"]) % len(allowed)]})  # before torch has threads
    try:
        _write(plan, Measuring(plan, processors).run())
    except CannotMeasure as error:
        if os.environ["LOCAL_RANK"] == "0":
            _write(plan, {"error": str(error), "hint": error.hint})
        return 1
    return 0


def _write(plan: Plan, found: dict[str, Any] | None) -> None:
    if found is not None:
        temporary = Path(f"{plan.result}.tmp")
        temporary.write_text(json.dumps(found))
        temporary.replace(plan.result)


class Measuring:
    """One rank's part of it. `processors`: that the ranks of its node may use together."""

    def __init__(self, plan: Plan, processors: int) -> None:
        import torch
        import torch.distributed as dist

        self._torch, self._dist, self._plan = torch, dist, plan
        self._rank, self._world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        self._per_node = int(os.environ["LOCAL_WORLD_SIZE"])
        self._device = self._choose_device()
        torch.set_num_threads(1)
        bound = timedelta(seconds=WAIT_S + plan.bound_s + len(plan.at_once) * plan.at_once_s)
        backend = plan.backend if self._device.type == "cpu" else f"cpu:gloo,{self._device.type}:{plan.backend}"
        dist.init_process_group(backend, timeout=bound)
        self._all = dist.new_group(backend="gloo", timeout=bound)
        self._check_alike()
        self._unsupported: dict[str, str] = {}
        self._at_once = self._probe_here(processors, bound) if plan.at_once else None
        largest = max(plan.sizes) // ITEM_BYTES + self._world
        self._sent, self._received = (torch.ones(largest, device=self._device) for _ in range(2))

    def run(self) -> dict[str, Any] | None:
        """What rank 0 found; None on the others."""
        try:
            cases = self._cases()
            rounds = self._measure(cases)
            eager_bytes = self._eager_bytes([case for case in cases if case.op == "send" and case.ranks == (0, 1)])
            at_once = self._at_once.measure(self._plan.at_once) if self._at_once is not None else {}
            spans = self._gather(cases)
            if self._rank:
                return None
            others = self._at_once.others if self._at_once is not None else []
            return {
                **self._found(cases, spans, rounds),
                "eager_bytes": eager_bytes,
                "at_once": at_once,
                "others_share": median(others) if others else 0.0,
            }
        finally:
            self._dist.destroy_process_group()

    def _probe_here(self, processors: int, timeout: timedelta) -> InterferenceProbe:
        return InterferenceProbe(
            self._torch,
            self._dist,
            rank=self._rank,
            per_node=self._per_node,
            groups=self._plan.groups,
            sizes=self._plan.sizes,
            processors=processors,
            rounds=self._plan.rounds,
            bound_s=self._plan.at_once_s,
            timeout=timeout,
        )

    def _choose_device(self) -> Any:
        torch, dist, plan = self._torch, self._dist, self._plan
        if not dist.is_backend_available(plan.backend):
            raise CannotMeasure(f"this torch has no backend {plan.backend}", "choose another --backend")
        if plan.backend != "nccl":
            return torch.device("cpu")
        count = torch.cuda.device_count() if torch.cuda.is_available() else 0
        if count < self._per_node:
            raise CannotMeasure(
                f"{socket.gethostname()} has {count} GPUs, but {self._per_node} ranks were requested",
                f"give --ranks of at most {count}" if count > 1 else "measure over --backend gloo",
            )
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
        return torch.device("cuda", int(os.environ["LOCAL_RANK"]))

    def _check_alike(self) -> None:
        own = self._torch.tensor([self._plan.digest, -self._plan.digest])
        self._dist.all_reduce(own, op=self._dist.ReduceOp.MAX, group=self._all)
        if int(own[0]) != -int(own[1]):
            raise CannotMeasure(
                "the nodes were given different options", "start it with the same options on every node"
            )

    # what is measured

    def _cases(self) -> list[Case]:
        """The same on every rank. An operation that the backend refuses is left out, and why is kept."""
        cases: list[Case] = []
        for ranks in self._plan.group_ranks(self._per_node):
            bound = timedelta(seconds=WAIT_S + self._plan.bound_s)
            group = self._dist.new_group(list(ranks), backend=self._plan.backend, timeout=bound)
            for op in self._plan.ops:
                if op == "send" and len(ranks) != 2:
                    continue
                made = [self._case(op, ranks, group, size) for size in ((0,) if op == "barrier" else self._plan.sizes)]
                if self._can(made[0]):
                    cases += made
        return cases

    def _case(self, op: str, ranks: tuple[int, ...], group: Any, size_bytes: int) -> Case:
        """`size_bytes` is rounded so that every member has as much."""
        items = -(-size_bytes // (ITEM_BYTES * len(ranks))) * len(ranks)
        run = self._runner(op, ranks, group, items) if self._rank in ranks else None
        return Case(op=op, ranks=ranks, size_bytes=items * ITEM_BYTES, run=run)

    def _can(self, case: Case) -> bool:
        refused = self._torch.zeros(1)
        why = ""
        if case.run is not None:
            try:
                case.run()
                self._sync()
            except (RuntimeError, NotImplementedError, ValueError) as error:
                refused[0], why = 1, str(error).splitlines()[0][:200]
        self._dist.all_reduce(refused, group=self._all)
        if refused.item():
            self._unsupported[case.op] = why
        return not refused.item()

    def _runner(self, op: str, ranks: tuple[int, ...], group: Any, items: int) -> Callable[[], None]:
        dist, first = self._dist, ranks[0]
        share = items // len(ranks)
        sent, received = self._sent[:items], self._received[:items]
        own, others = sent[:share], list(received.split(share)) if share else []
        is_root = self._rank == first
        runners: dict[str, Callable[[], Any]] = {
            "all_reduce": lambda: dist.all_reduce(sent, group=group),
            "all_gather": lambda: dist.all_gather_into_tensor(received, own, group=group),
            "reduce_scatter": lambda: dist.reduce_scatter_tensor(received[:share], sent, group=group),
            "all_to_all": lambda: dist.all_to_all_single(received, sent, group=group),
            "broadcast": lambda: dist.broadcast(sent, first, group=group),
            "reduce": lambda: dist.reduce(sent, first, group=group),
            "gather": lambda: dist.gather(own, others if is_root else None, first, group=group),
            "scatter": lambda: dist.scatter(
                received[:share], list(sent.split(share)) if is_root else None, first, group
            ),
            "barrier": lambda: dist.barrier(group=group),
            "send": lambda: dist.send(sent, ranks[1], group) if is_root else dist.recv(received, first, group),
        }
        return runners[op]

    # measuring

    def _measure(self, cases: list[Case]) -> int:
        """How many rounds were measured, at least one; the first is not counted, for memory and links warm up."""
        began = time.monotonic()
        done = 0
        for number in range(self._plan.rounds + 1):
            order = [case for case in cases for _ in range(case.repeats)]
            random.Random(number).shuffle(order)
            for case in order:
                self._once(case, keep=number > 0)
            done = number
            taken_s = time.monotonic() - began
            if self._stops(done >= 1 and taken_s * (number + 2) / (number + 1) > self._plan.bound_s):
                break
        return done

    def _once(self, case: Case, *, keep: bool) -> None:
        self._dist.barrier(group=self._all)
        if case.run is None:
            return
        start = time.monotonic_ns()
        case.run()
        self._sync()
        if keep:
            case.spans.append((start, time.monotonic_ns()))

    def _sync(self) -> None:
        if self._device.type == "cuda":
            self._torch.cuda.synchronize()

    def _stops(self, says: bool) -> bool:
        """As rank 0 says."""
        flag = self._torch.tensor([float(says)])
        self._dist.broadcast(flag, 0, group=self._all)
        return bool(flag.item())

    def _eager_bytes(self, sends: list[Case]) -> int:
        """The largest size up to which every send is over although its receiver is not there yet; 0 for none."""
        largest = 0
        for case in sorted(sends, key=lambda case: case.size_bytes):
            took_s = min(self._send_to_late(case) for _ in range(REPEATS))
            if self._stops(took_s > LATE_S / 2):
                break
            largest = case.size_bytes
        return largest

    def _send_to_late(self, case: Case) -> float:
        """How long the sender stood."""
        self._dist.barrier(group=self._all)
        began = time.monotonic()
        if self._rank == 1:
            time.sleep(LATE_S)
        if case.run is not None:
            case.run()
            self._sync()
        return time.monotonic() - began

    # what came of it

    def _gather(self, cases: list[Case]) -> list[Any]:
        """Of each rank, numbers of cases x measurements x (start, end); -1 where it took no part. On rank 0."""
        counts = self._torch.tensor([max((len(case.spans) for case in cases), default=0)])
        self._dist.all_reduce(counts, op=self._dist.ReduceOp.MAX, group=self._all)
        own = self._torch.full((len(cases), int(counts[0]), 2), -1, dtype=self._torch.int64)
        for number, case in enumerate(cases):
            if case.spans:
                own[number, : len(case.spans)] = self._torch.tensor(case.spans)
        there = [self._torch.empty_like(own) for _ in range(self._world)] if self._rank == 0 else None
        self._dist.gather(own, there, 0, group=self._all)
        return [] if there is None else [tensor.tolist() for tensor in there]

    def _found(self, cases: list[Case], spans: list[Any], rounds: int) -> dict[str, Any]:
        made = []
        for number, case in enumerate(cases):
            nodes = {rank // self._per_node for rank in case.ranks}
            times = [
                taken_ns([spans[rank][number][at] for rank in case.ranks], case.op, has_one_clock=len(nodes) == 1)
                for at in range(rounds * case.repeats)
            ]
            made.append({"op": case.op, "ranks": case.ranks, "size_bytes": case.size_bytes, "times_ns": times})
        return {
            "cases": made,
            "rounds": rounds,
            "per_node": self._per_node,
            "unsupported": self._unsupported,
            "device": self._torch.cuda.get_device_name() if self._device.type == "cuda" else "",
            "torch": self._torch.__version__,
        }


def taken_ns(spans: Sequence[Sequence[int]], op: str, *, has_one_clock: bool) -> int:
    """From the last start to the last end. Without a common clock: as long as who came last took, who is taken to be
    whoever took shortest; where a root may be through before the others, as long as the slowest.
    """
    if has_one_clock:
        return max(end for _, end in spans) - max(start for start, _ in spans)
    own = [end - start for start, end in spans]
    return max(own) if op in ("broadcast", "reduce", "gather", "scatter", "send") else min(own)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
