"""When each rank came to a collective, where the run that the capsule was taken from is still there to be read.

A capsule holds one rank's log; the others' times lie in the run folder.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from prismdbg.capsule.capsule_dir import Capsule
from prismdbg.capsule.stacks import HangPlace, capsule_stacks
from prismdbg.errors import PrismError
from prismdbg.jobs.storage.run_folder import RunFolder
from prismdbg.log.rank_log import read_log
from prismdbg.model.collective import Group

MAX_RANKS = 64  # their logs are read as a whole


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival:
    """`after_first_ns`: how much later than the first of the group."""

    rank: int
    after_first_ns: int


class Arrivals:
    def __init__(
        self, run: RunFolder | None, hang: HangPlace | None = None, groups: Sequence[Group] = (), rank: int = -1
    ) -> None:
        """`hang`, `groups`, `rank`: what the capsule knows, also where the run is not there."""
        self._run = run
        self.hang = hang
        self._groups = groups
        self._rank = rank
        self._times = lru_cache(MAX_RANKS)(self._read)

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
        known = {rank: self._times(rank).get(identity) for rank in ranks}
        times = sorted((time_ns, rank) for rank, time_ns in known.items() if time_ns is not None)
        return tuple(Arrival(rank=rank, after_first_ns=time_ns - times[0][0]) for time_ns, rank in times)

    def _read(self, rank: int) -> dict[str, int]:
        assert self._run is not None
        try:
            log = read_log(self._run.latest(rank))
        except (PrismError, OSError):
            return {}
        met = [r for r in log.collectives if not r.is_p2p and not r.is_on_device]
        return {str(r.identity): r.time_created_ns + log.wall_offset_ns for r in met}


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
