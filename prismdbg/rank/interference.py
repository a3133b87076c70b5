"""What the ranks of one node cost each other: a transfer beside computation, groups beside groups, ranks beside ranks.

`prismdbg calibrate` measures it on the ranks of its first node, on CPUs. Everything is measured in rounds, alone and at
once in turn, so that what drifts is in both. Every rank is told every figure, so that all of them decide alike.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import cycle
from typing import Any

OVERLAP, LINKS, PROCESSORS = "overlap", "links", "processors"
COMPUTE_OVERLAP, COMMUNICATION_OVERLAP = "compute_overlap", "communication_overlap"
LEAST_BYTES, MOST_BYTES = 1 << 18, 1 << 24
MOST_SIZES = 3
ALONE_S = 0.02  # so long a computation is timed
LEAST_PIECES = 8  # of a computation, while a transfer is under way
MOST_PIECES = 20_000  # a transfer that lasts longer is measured up to here
_ITEM_BYTES = 4


@dataclass(slots=True, kw_only=True)
class Compared:
    """One thing alone and at once with others, in nanoseconds, as often as it was measured. count: how many at once."""

    kind: str
    count: int
    members: int
    size_bytes: int = 0
    alone_ns: list[int] = field(default_factory=list)
    at_once_ns: list[int] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__slots__}


def overlap_sizes(sizes: Sequence[int]) -> tuple[int, ...]:
    """The largest within bounds, for a transfer has to last long beside the pieces of a computation; else one size."""
    small = sorted(size for size in sizes if size <= MOST_BYTES)
    within = [size for size in small if size >= LEAST_BYTES]
    return tuple(within[-MOST_SIZES:]) or (small[-1] if small else min(sizes),)


def overlap_group(groups: Sequence[int], processors: int) -> int:
    """The largest group with a processor for each rank; else the smallest, for it shares them the least."""
    return max((members for members in groups if members <= processors), default=min(groups))


def shared_groups(groups: Sequence[int], per_node: int) -> list[tuple[int, int]]:
    """Ranks of a group, and how many such groups at once; at most what the node has ranks for, and halves of it."""
    found = []
    for members in sorted(set(groups)):
        count = per_node // members
        while count > 1:
            found.append((members, count))
            count //= 2
    return found


def rank_counts(groups: Sequence[int], per_node: int, processors: int) -> tuple[int, ...]:
    """How many ranks compute at once: as many as there are processors, and the numbers beyond that are measured."""
    beyond = {count for count in (*groups, per_node) if processors < count <= per_node}
    return tuple(sorted({*beyond, *((processors,) if beyond and processors > 1 else ())}))


def got_share(used_ns: Sequence[int], taken_ns: Sequence[int], processors: int) -> float:
    """Of the processor time that these ranks could have had while they computed, what they got: the rest is others'.

    used_ns, taken_ns: of each rank, processor time and time.
    """
    could_ns = sum(taken_ns) / len(taken_ns) * min(len(taken_ns), processors)
    return min(sum(used_ns) / could_ns, 1.0)


class InterferenceProbe:
    """One rank's part of it. Made on every rank of the job, measured on those of the first node."""

    def __init__(
        self,
        torch: Any,
        dist: Any,
        *,
        rank: int,
        per_node: int,
        groups: Sequence[int],
        sizes: Sequence[int],
        processors: int,
        rounds: int,
        bound_s: float,
        timeout: Any,
    ) -> None:
        """`bound_s`: of each measure. processors: of this node that the ranks may use."""
        self._torch, self._dist = torch, dist
        self._rank, self._rounds, self._bound_s = rank, rounds, bound_s
        self._per_node, self._processors = per_node, processors
        self._sizes = overlap_sizes(sizes)
        self._group_sizes = tuple(sorted(set(groups)))
        self._node = dist.new_group(list(range(per_node)), backend="gloo", timeout=timeout)
        self._groups: dict[tuple[int, int], Any] = {}  # by members and number in the node
        for members in self._group_sizes:
            for number in range(per_node // members):
                ranks = list(range(number * members, (number + 1) * members))
                self._groups[members, number] = dist.new_group(ranks, backend="gloo", timeout=timeout)
        self._sent = torch.ones(max(self._sizes) // _ITEM_BYTES + 1)
        self._pieces = self._computations()
        self.others: list[float] = []  # shares of the processors that other programs took while ranks computed

    def measure(self, names: Sequence[str]) -> dict[str, list[dict[str, Any]]]:
        """By name of the factor that follows from it; nothing on ranks of other nodes."""
        found: dict[str, list[Compared]] = {}
        if self._rank < self._per_node:
            for name in names:
                found |= {OVERLAP: self._overlap, LINKS: self._links, PROCESSORS: self._shared_processors}[name]()
        return {name: [case.to_json() for case in cases] for name, cases in found.items()}

    def _computations(self) -> dict[str, Callable[[], object]]:
        """Small pieces: one within the cache, one through memory."""
        torch = self._torch
        left, right, out = (torch.ones(128, 128) for _ in range(3))
        parts = cycle(torch.ones(1 << 22).split(1 << 16))
        return {"matmul": lambda: torch.mm(left, right, out=out), "add": lambda: next(parts).add_(1.0)}

    # the three measures

    def _overlap(self) -> dict[str, list[Compared]]:
        """Computations and transfers of one group: the computation's pieces, and the transfer as a whole."""
        members = overlap_group(self._group_sizes, self._processors)
        cases: dict[tuple[str, int], tuple[Compared, Compared]] = {
            (kind, size): (
                Compared(kind=kind, count=2, members=members, size_bytes=size),
                Compared(kind=kind, count=2, members=members, size_bytes=size),
            )
            for kind in self._pieces
            for size in self._sizes
        }

        def once(number: int) -> None:
            for key in _shuffled(list(cases), number):
                self._overlap_once(*cases[key], keep=number > 0)

        self._in_rounds(once)
        kept = [pair for pair in cases.values() if pair[0].at_once_ns]
        return {COMPUTE_OVERLAP: [pair[0] for pair in kept], COMMUNICATION_OVERLAP: [pair[1] for pair in kept]}

    def _overlap_once(self, computation: Compared, transfer: Compared, *, keep: bool) -> None:
        kind, members, size = computation.kind, computation.members, computation.size_bytes
        takes_part = self._rank < members
        piece_ns = self._without_others(kind, members)
        self._barrier()
        began = time.monotonic_ns()
        if takes_part:
            self._issued(members, size).wait()
        transfer_ns = time.monotonic_ns() - began
        self._barrier()
        used_ns, began = time.process_time_ns(), time.monotonic_ns()
        both = self._both(kind, members, size) if takes_part else [0, 0]
        mine = [transfer_ns, *both, time.process_time_ns() - used_ns, time.monotonic_ns() - began]
        told = self._told(mine)[:members]
        if keep and all(each[2] for each in told):
            share = got_share([each[3] for each in told], [each[4] for each in told], self._processors)
            self.others.append(1 - share)
            computation.alone_ns.append(piece_ns)
            computation.at_once_ns.append(_scaled([each[2] for each in told], share))
            transfer.alone_ns.append(_mean([each[0] for each in told]))
            transfer.at_once_ns.append(_mean([each[1] for each in told]))  # what others took of one alone is not known

    def _both(self, kind: str, members: int, size: int) -> list[int]:
        """How long the transfer took, and a piece of the computation meanwhile: 0 where it was over too soon."""
        run = self._pieces[kind]
        began = last = time.monotonic_ns()
        work = self._issued(members, size)
        computing = time.monotonic_ns()
        pieces = 0
        while pieces < MOST_PIECES:
            run()
            now = time.monotonic_ns()
            if work.is_completed():
                break
            last, pieces = now, pieces + 1
        work.wait()
        if not LEAST_PIECES <= pieces < MOST_PIECES:
            return [0, 0]
        return [(last + now) // 2 - began, (last - computing) // pieces]

    def _links(self) -> dict[str, list[Compared]]:
        """Groups of the node that communicate at once, against the first of them alone."""
        cases = {
            (members, count, size): Compared(kind="all_reduce", count=count, members=members, size_bytes=size)
            for members, count in shared_groups(self._group_sizes, self._per_node)
            for size in self._sizes
        }

        def once(number: int) -> None:
            for key in _shuffled(list(cases), number):
                self._links_once(cases[key], keep=number > 0)

        if cases:
            self._in_rounds(once)
        return {LINKS: list(cases.values())}

    def _links_once(self, case: Compared, *, keep: bool) -> None:
        members, count, size = case.members, case.count, case.size_bytes
        spans = []
        for groups in (1, count):
            self._barrier()
            began = time.monotonic_ns()
            if self._rank < groups * members:
                self._issued(members, size).wait()
            spans += [began, time.monotonic_ns()]
        told = self._told(spans)[: count * members]
        if keep:
            case.alone_ns.append(_taken([each[:2] for each in told[:members]]))
            groups_at_once = [told[first : first + members] for first in range(0, len(told), members)]
            case.at_once_ns.append(_mean([_taken([each[2:] for each in group]) for group in groups_at_once]))

    def _shared_processors(self) -> dict[str, list[Compared]]:
        """Ranks that compute at once, against the first of them alone."""
        counts = rank_counts(self._group_sizes, self._per_node, self._processors)
        cases = {
            (kind, count): Compared(kind=kind, count=count, members=1) for kind in self._pieces for count in counts
        }

        def once(number: int) -> None:
            for kind, count in _shuffled(list(cases), number):
                alone, at_once = (self._without_others(kind, ranks) for ranks in (1, count))
                if number > 0:
                    cases[kind, count].alone_ns.append(alone)
                    cases[kind, count].at_once_ns.append(at_once)

        if cases:
            self._in_rounds(once)
        return {PROCESSORS: list(cases.values())}

    def _without_others(self, kind: str, ranks: int) -> int:
        """How long a piece takes for each of so many ranks, less what other programs took of the processors."""
        self._barrier()
        used_ns, began = time.thread_time_ns(), time.monotonic_ns()
        piece_ns = self._computed(kind) if self._rank < ranks else 0
        told = self._told([piece_ns, time.thread_time_ns() - used_ns, time.monotonic_ns() - began])[:ranks]
        share = got_share([used for _, used, _ in told], [taken for *_, taken in told], self._processors)
        self.others.append(1 - share)
        return _scaled([piece for piece, *_ in told], share)

    # what they are made of

    def _issued(self, members: int, size: int) -> Any:
        """A transfer of this rank's group, under way."""
        tensor = self._sent[: max(size // _ITEM_BYTES, 1)]
        return self._dist.all_reduce(tensor, group=self._groups[members, self._rank // members], async_op=True)

    def _computed(self, kind: str) -> int:
        """How long a piece takes. All ranks that compute do so for the same time, so that none is alone at the end."""
        run = self._pieces[kind]
        began = time.monotonic_ns()
        ends, pieces, now = began + round(ALONE_S * 1e9), 0, began
        while now < ends:
            run()
            pieces += 1
            now = time.monotonic_ns()
        return (now - began) // pieces

    def _in_rounds(self, once: Callable[[int], None]) -> None:
        """At least one that counts; the first does not, for caches and links warm up."""
        began = time.monotonic_ns()
        for number in range(self._rounds + 1):
            once(number)
            taken_s = self._told([time.monotonic_ns() - began])[0][0] / 1e9
            if number >= 1 and taken_s * (number + 2) / (number + 1) > self._bound_s:
                break

    def _barrier(self) -> None:
        self._dist.barrier(group=self._node)

    def _told(self, own: Sequence[int]) -> list[list[int]]:
        """What each rank of the node found."""
        mine = self._torch.tensor(own, dtype=self._torch.int64)
        found = [self._torch.empty_like(mine) for _ in range(self._per_node)]
        self._dist.all_gather(found, mine, group=self._node)
        return [each.tolist() for each in found]


def _shuffled(keys: list[Any], number: int) -> list[Any]:
    random.Random(number).shuffle(keys)
    return keys


def _mean(values: Sequence[int]) -> int:
    return max(sum(values) // len(values), 1)


def _scaled(values: Sequence[int], share: float) -> int:
    return max(round(_mean(values) * share), 1)


def _taken(spans: Sequence[Sequence[int]]) -> int:
    """From the last start to the last end."""
    return max(max(end for _, end in spans) - max(start for start, _ in spans), 1)
