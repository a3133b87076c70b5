"""When each rank came to a collective, where the run that the capsule was taken from is still there to be read.

A capsule holds one rank's log; the others' times lie in the run folder.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from prismdbg.capsule.capsule_dir import Capsule
from prismdbg.capsule.stacks import HangPlace, capsule_stacks
from prismdbg.diagnosis.cross_rank import is_op
from prismdbg.errors import PrismError
from prismdbg.jobs.storage.run_folder import RunFolder
from prismdbg.log.columns import LAST_BYTES, LogColumns, read_columns
from prismdbg.log.segment import Ints
from prismdbg.model.collective import Group, Identity
from prismdbg.model.ops import BARRIERS

MAX_RANKS = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival:
    """`after_first_ns`: how much later than the first of the group."""

    rank: int
    after_first_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Calls:
    """A rank's collectives by group: their sequence numbers, rising, and when it came to each, in ns of the wall
    clock. `has_older`: the log has some that were not read."""

    by_group: dict[str, tuple[Ints, Ints]]
    has_older: bool

    def came_ns(self, identity: str) -> int | None:
        for group, (seqs, came_ns) in self.by_group.items():
            seq = _seq(identity, group)
            row = int(np.searchsorted(seqs, seq))
            if seq >= 0 and row < len(seqs) and int(seqs[row]) == seq:
                return int(came_ns[row])
        return None


_NO_CALLS = _Calls(by_group={}, has_older=False)


class Arrivals:
    def __init__(
        self, run: RunFolder | None, hang: HangPlace | None = None, groups: Sequence[Group] = (), rank: int = -1
    ) -> None:
        """`hang`, `groups`, `rank`: what the capsule knows, also where the run is not there."""
        self._run = run
        self.hang = hang
        self._groups = groups
        self._rank = rank
        self._calls = lru_cache(2 * MAX_RANKS)(self._read)

    @classmethod
    def of_capsule(cls, capsule: Capsule) -> Arrivals:
        if capsule.manifest.emulated:  # each of its ranks ran alone, when its turn came
            return cls(None)
        inject = capsule.rank().get("inject")
        run = RunFolder(Path(inject).parent) if inject else None
        taken = capsule_stacks(capsule)
        there = run if run is not None and run.run_json.is_file() else None
        manifest = capsule.manifest
        return cls(there, taken.hang if taken is not None else None, manifest.groups, manifest.rank)

    def in_hang(self) -> dict[str, Any] | None:
        """The peers of the collective that the rank was captured in, where the job hung there."""
        hang = self.hang
        group = next((g for g in self._groups if hang is not None and f"group {g.name} #" in hang.identity), None)
        if hang is None or group is None or self._rank not in hang.waiting:
            return None
        members = [
            {
                "rank": rank,
                "group_rank": place,
                "role": "this rank" if rank == self._rank else "not answered",
                "arrived": hang.arrived(rank) or "unknown",
            }
            for place, rank in enumerate(group.ranks)
        ]
        return {"group": group.name, "title": group.title, "size": group.size, "members": members, "recorded_ns": None}

    def of(self, identity: str, ranks: list[int]) -> tuple[Arrival, ...]:
        """The first of them first; of a rank whose log does not have it nothing is said. Machines' clocks are as well
        set as they are."""
        if self._run is None or not identity or len(ranks) > MAX_RANKS:
            return ()
        known = {rank: self._came_ns(rank, identity) for rank in ranks}
        times = sorted((time_ns, rank) for rank, time_ns in known.items() if time_ns is not None)
        return tuple(Arrival(rank=rank, after_first_ns=time_ns - times[0][0]) for time_ns, rank in times)

    def _came_ns(self, rank: int, identity: str) -> int | None:
        """A capsule is mostly of what happened last. Where the log's end lacks it, the whole is read, weeks perhaps."""
        newest = self._calls(rank, LAST_BYTES)
        came_ns = newest.came_ns(identity)
        if came_ns is None and newest.has_older:
            came_ns = self._calls(rank, None).came_ns(identity)
        return came_ns

    def _read(self, rank: int, newest_bytes: int | None) -> _Calls:
        assert self._run is not None
        try:
            log = read_columns(self._run.latest(rank), newest_bytes)
        except (PrismError, OSError):
            return _NO_CALLS
        return _calls(log)


def _calls(log: LogColumns) -> _Calls:
    holds_host = ~log.on_device | is_op(log, BARRIERS)
    meets = np.flatnonzero(~log.is_p2p & holds_host)
    by_group = {}
    for number in np.unique(log.group[meets]).tolist():
        rows = meets[log.group[meets] == number]
        rows = rows[np.argsort(log.seq[rows], kind="stable")]  # threads may issue in another order
        by_group[log.texts.get(number, "")] = (log.seq[rows], log.begun_ns[rows] + log.wall_offset_ns)
    return _Calls(by_group=by_group, has_older=log.read_from_later)


def _seq(identity: str, group: str) -> int:
    """The sequence number of a collective of this group; -1 where it is another's."""
    number = identity.removeprefix(str(Identity(group, 0)).removesuffix("0"))
    return int(number) if number.isdecimal() else -1


def with_hang(peers: dict[str, Any], identity: str, hang: HangPlace | None) -> dict[str, Any]:
    """At the collective that the job hung in: who never came to it, and what it did last."""
    if hang is None or identity != hang.identity:
        return peers
    said = {int(m["rank"]): hang.arrived(int(m["rank"])) for m in peers["members"] if m["role"] != "this rank"}
    members = [{**m, "arrived": said.get(int(m["rank"])) or m["arrived"]} for m in peers["members"]]
    return {**peers, "members": members}


def with_arrivals(peers: dict[str, Any], arrivals: tuple[Arrival, ...]) -> dict[str, Any]:
    """The rank's own answer about its peers, with `after_first_ns` for each member and who was `last`."""
    known = {arrival.rank: arrival.after_first_ns for arrival in arrivals}
    members = [{**member, "after_first_ns": known.get(int(member["rank"]))} for member in peers["members"]]
    whole = len(known) == int(peers["size"]) > 1
    return {**peers, "members": members, "last": arrivals[-1].rank if whole else None}
