"""Ranks for which the others wait most often. By waits, not by clocks: who comes last waits least, on any machine."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import median
from typing import Any

from prismdbg.diagnosis.evidence import Evidence
from prismdbg.diagnosis.verdict import Certainty, Verdict
from prismdbg.diagnosis.wording import duration
from prismdbg.model.collective import Group
from prismdbg.model.counted import counted

FEWEST_COLLECTIVES = 8
LEAST_SHARE = 0.75
LEAST_LATENESS_NS = 1_000_000
LEAST_OF_THE_TIME = 0.1  # that the collectives took, with what lay between them


@dataclass(frozen=True, slots=True, kw_only=True)
class Straggler(Verdict):
    """Came last in `times` of `of` collectives of the group, by `lateness_ns` in the middle, which is `share` of the
    time."""

    group: Group
    times: int
    of: int
    lateness_ns: int
    share: float

    kind = "straggler"

    @property
    def text(self) -> str:
        where = f"{self.times} of {counted(self.of, 'collective')} of group {self.group.title}"
        return (
            f"rank {self.ranks[0]} came last in {where}, by {duration(self.lateness_ns)}: {self.share:.0%} of the time"
        )

    def details(self) -> dict[str, Any]:
        return {
            "group": self.group.name,
            "times": self.times,
            "of": self.of,
            "lateness_ns": self.lateness_ns,
            "share": self.share,
        }


def find_stragglers(evidence: Evidence) -> list[Verdict]:
    """One rank a group at most, where most of its collectives waited for that rank, and not for nothing."""
    found: list[Verdict] = []
    for name, waits in waits_by_group(evidence).items():
        group = evidence.group(name)
        complete = [by_rank for by_rank in waits.values() if group.size > 1 and len(by_rank) == group.size]
        if len(complete) < FEWEST_COLLECTIVES:
            continue
        rank, times = Counter(min(by_rank, key=by_rank.__getitem__) for by_rank in complete).most_common(1)[0]
        lateness_ns = round(median(lateness_of(by_rank, rank) for by_rank in complete))
        share = lateness_ns * times / max(_lasted_ns(evidence, name, rank), 1)
        matters = lateness_ns >= LEAST_LATENESS_NS and share >= LEAST_OF_THE_TIME
        if times >= LEAST_SHARE * len(complete) and matters:
            found.append(
                Straggler(
                    certainty=Certainty.HINT,
                    began_wall_ns=0,
                    ranks=(rank,),
                    group=group,
                    times=times,
                    of=len(complete),
                    lateness_ns=lateness_ns,
                    share=min(share, 1.0),
                )
            )
    return found


def waits_by_group(evidence: Evidence) -> dict[str, dict[int, dict[int, int]]]:
    """By group and sequence: how long each rank waited. Without the steps in which a rank was parked."""
    waits: dict[str, dict[int, dict[int, int]]] = defaultdict(lambda: defaultdict(dict))
    parked = evidence.parked_steps()
    for rank, log in evidence.logs.items():
        for call in log.collectives:
            if call.duration_ns is not None and not call.is_p2p and call.moment.step not in parked:
                waits[call.group][call.identity.seq][rank] = call.duration_ns
    return waits


def lateness_of(waits: Mapping[int, int], rank: int) -> float:
    """How much longer the others waited, in the middle."""
    return median(wait for other, wait in waits.items() if other != rank) - waits[rank]


def _lasted_ns(evidence: Evidence, group: str, rank: int) -> int:
    """From the rank's first collective of the group to the end of its last."""
    calls = [call for call in evidence.logs[rank].collectives if call.group == group and call.duration_ns is not None]
    return max(c.time_completed_ns or 0 for c in calls) - min(c.time_created_ns for c in calls)
