"""For whom a rank waited in its collectives: until when the last member of the group came, by the ranks' clocks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from prismdbg.capsule.log.events import RankLog
from prismdbg.diagnosis.wording import rank_list
from prismdbg.model.collective import Collective

Key = tuple[str, tuple[int, ...], int]


@dataclass(slots=True)
class _Arrival:
    """`last_ns`: since 1970."""

    last_ns: int = 0
    last_rank: int = -1
    came: set[int] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class Wait:
    """On the rank's own clock. `end_ns` is None where the rank waited until its log ends."""

    begin_ns: int
    end_ns: int | None
    text: str


class Arrivals:
    """When the ranks came to each collective."""

    def __init__(self, logs: Mapping[int, RankLog], kept: Mapping[int, Sequence[Collective]]) -> None:
        self._logs = logs
        self._seen: dict[Key, _Arrival] = {}
        for rank, calls in kept.items():
            for call in calls:
                if (key := self._key(logs[rank], call)) is not None:
                    arrival = self._seen.setdefault(key, _Arrival())
                    arrival.came.add(rank)
                    came_ns = call.time_created_ns + logs[rank].wall_offset_ns
                    if came_ns > arrival.last_ns:
                        arrival.last_ns, arrival.last_rank = came_ns, rank

    def wait(self, rank: int, call: Collective) -> Wait | None:
        """None where the rank came last, or did not wait for the last one; on a device that is not known."""
        log = self._logs[rank]
        if call.is_on_device or (key := self._key(log, call)) is None:
            return None
        arrival, ended_ns = self._seen[key], call.time_completed_ns
        missing = [member for member in key[1] if member in self._logs and member not in arrival.came]
        if missing and ended_ns is None:
            return Wait(call.time_created_ns, None, f"wait for {rank_list(missing)}, which never joined")
        until_ns = arrival.last_ns - log.wall_offset_ns
        if until_ns <= call.time_created_ns or (ended_ns is not None and ended_ns < until_ns):
            return None
        return Wait(call.time_created_ns, until_ns, f"wait for rank {arrival.last_rank}")

    @staticmethod
    def _key(log: RankLog, call: Collective) -> Key | None:
        if call.is_p2p or (group := log.groups.get(call.group)) is None:
            return None
        return group.name, group.ranks, call.identity.seq
