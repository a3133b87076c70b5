"""Which ranks take part: of a row its group, or the two of a point-to-point call. Lanes are made of such sets."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from prismdbg.log.columns import LogColumns
from prismdbg.model.collective import Group

Ints = NDArray[np.int64]
MAX_RANKS = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class RankSet:
    """`ranks` that took part; `group` is a number in `RankSets.groups`."""

    group: int
    ranks: tuple[int, ...]
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RankSets:
    """`of[row]` is a number in `all`. `groups` in the order in which they were first used."""

    of: Ints
    all: tuple[RankSet, ...]
    groups: tuple[Group, ...]
    group_of: Ints

    def counted(self, group: int) -> int:
        return sum(rank_set.count for rank_set in self.all if rank_set.group == group)


@dataclass(frozen=True, slots=True, kw_only=True)
class Lane:
    """One line of the timeline: a group, or a rank with all that it has in common with ours."""

    title: str
    members: tuple[int, ...]
    count: int
    rank_sets: tuple[int, ...]
    is_own: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Lanes:
    by_rank: bool
    all: tuple[Lane, ...]
    left_out: int = 0

    def __len__(self) -> int:
        return len(self.all)

    def rows(self, lane: int, rank_sets: RankSets) -> Ints:
        inside = np.zeros(len(rank_sets.all), dtype=np.bool_)
        inside[list(self.all[lane].rank_sets)] = True
        return np.flatnonzero(inside[rank_sets.of])

    def of(self, rank_set: int) -> int:
        """The first lane that has it; of a rank's lanes rather another's than our own, which has them all."""
        found = [n for n, lane in enumerate(self.all) if rank_set in lane.rank_sets]
        return next((n for n in found if not self.all[n].is_own), found[0] if found else 0)

    def shares(self, rank_sets: int) -> NDArray[np.float64]:
        """lanes x sets: 1 where the lane shows the set."""
        matrix = np.zeros((len(self.all), rank_sets))
        for number, lane in enumerate(self.all):
            matrix[number, list(lane.rank_sets)] = 1.0
        return matrix


def find_rank_sets(columns: LogColumns, known: dict[str, Group], rank: int) -> RankSets:
    """`known` groups by name, where the log describes fewer than the capsule."""
    codes, group_of = in_order_of_use(columns.group)
    names = [columns.texts.get(code, "") for code in codes]
    described = known | columns.groups
    groups = tuple(described.get(name, Group(name=name, ranks=())) for name in names)
    peer = np.where(columns.is_p2p & (columns.root >= 0), columns.root + 1, 0)
    stride = int(peer.max(initial=0)) + 1
    keys, of = in_order_of_use(group_of * stride + peer)
    counts = np.bincount(of, minlength=len(keys))
    rank_sets = tuple(
        RankSet(
            group=key // stride,
            ranks=_ranks(groups[key // stride], key % stride - 1, rank),
            count=int(counts[number]),
        )
        for number, key in enumerate(keys)
    )
    return RankSets(of=of, all=rank_sets, groups=groups, group_of=group_of)


def lanes_by_group(rank_sets: RankSets) -> Lanes:
    lanes = []
    for number, group in enumerate(rank_sets.groups):
        inside = tuple(n for n, rank_set in enumerate(rank_sets.all) if rank_set.group == number)
        lanes.append(
            Lane(title=group.title or "?", members=group.ranks, count=rank_sets.counted(number), rank_sets=inside)
        )
    return Lanes(by_rank=False, all=tuple(lanes))


def lanes_by_rank(rank_sets: RankSets, own: int) -> Lanes:
    """Our own rank first, then those that it met."""
    met = sorted({rank for rank_set in rank_sets.all for rank in rank_set.ranks} - {own})
    lanes = [
        Lane(
            title=f"rank {own}",
            members=(),
            count=len(rank_sets.of),
            rank_sets=tuple(range(len(rank_sets.all))),
            is_own=True,
        )
    ]
    for rank in met[: MAX_RANKS - 1]:
        inside = tuple(n for n, rank_set in enumerate(rank_sets.all) if rank in rank_set.ranks)
        lanes.append(
            Lane(title=f"rank {rank}", members=(), count=sum(rank_sets.all[n].count for n in inside), rank_sets=inside)
        )
    return Lanes(by_rank=True, all=tuple(lanes), left_out=max(len(met) - MAX_RANKS + 1, 0))


def _ranks(group: Group, peer: int, own: int) -> tuple[int, ...]:
    if 0 <= peer < len(group.ranks):
        return tuple(sorted({group.ranks[peer], own}))
    return group.ranks


def in_order_of_use(codes: Ints) -> tuple[list[int], Ints]:
    """The different codes, and each row's number among them. Where codes are small, without sorting a million."""
    if not len(codes):
        return [], codes
    least, most = int(codes.min()), int(codes.max())
    if least < 0 or most > max(4 * len(codes), 1 << 16):  # of a damaged log
        different, first, numbers = np.unique(codes, return_index=True, return_inverse=True)
        order = np.argsort(first)
        rank = np.empty(len(order), dtype=np.int64)
        rank[order] = np.arange(len(order))
        return different[order].tolist(), rank[numbers]
    first = np.full(most + 1, len(codes), dtype=np.int64)
    first[codes[::-1]] = np.arange(len(codes) - 1, -1, -1)  # the last that is written stays: the earliest row
    used = np.flatnonzero(first < len(codes))
    used = used[np.argsort(first[used])]
    number = np.zeros(most + 1, dtype=np.int64)
    number[used] = np.arange(len(used))
    return used.tolist(), number[codes]
