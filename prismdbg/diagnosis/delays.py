"""A rank that keeps the others waiting from some place on, often or for long: a job that got slow. By waits, not by
clocks, as in `stragglers`."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import Any

from prismdbg.diagnosis.evidence import Evidence
from prismdbg.diagnosis.stragglers import FEWEST_COLLECTIVES, LEAST_LATENESS_NS, lateness_of, waits_by_group
from prismdbg.diagnosis.verdict import Call, Certainty, Verdict
from prismdbg.diagnosis.wording import duration
from prismdbg.model.collective import Collective, Group
from prismdbg.model.counted import counted
from prismdbg.model.moment import Moment

LEAST_SHARE = 0.75  # of all that ranks of the group waited for one another
LEAST_OF_THE_TIME = 0.1  # since the first delay
LEAST_WAITED_NS = 100_000_000  # in all: less is no reason to look for anything
_ALIKE = 0.25  # of the longest but one: what counts as one of these delays


@dataclass(frozen=True, slots=True, kw_only=True)
class Delay(Verdict):
    """Others waited `waited_ns` for the rank, in `times` collectives of the group, the first of them `first`, within
    `within_ns`. `before`: its call before that one; what took so long lies between the two."""

    group: Group
    times: int
    waited_ns: int
    within_ns: int
    first: Call
    before: Call | None

    kind = "delay"

    @property
    def moment(self) -> Moment:
        return self.first.collective.moment

    @property
    def text(self) -> str:
        where = f"in {counted(self.times, 'collective')} of group {self.group.title}, from {self.moment} on"
        much = f"{duration(self.waited_ns)} of {duration(self.within_ns)}"
        return f"the others waited for rank {self.ranks[0]} {where}: {much}"

    @property
    def lines(self) -> tuple[str, ...]:
        lines = [f"it first came late to: {self.first.text}"]
        if self.before is not None:
            lines.append(f"its delay begins after: {self.before.text}")
        return tuple(lines)

    def details(self) -> dict[str, Any]:
        return {
            "group": self.group.name,
            "times": self.times,
            "waited_ns": self.waited_ns,
            "within_ns": self.within_ns,
            "first": self.first.to_json(),
            "before": None if self.before is None else self.before.to_json(),
        }


def find_delays(evidence: Evidence) -> list[Verdict]:
    """One rank a group at most. Until the first step is complete ranks wait for those that started later."""
    found: list[Verdict] = []
    for name, waits in waits_by_group(evidence).items():
        group = evidence.group(name)
        begun = _begun(evidence, name)
        complete = {seq: by_rank for seq, by_rank in waits.items() if 1 < group.size == len(by_rank) and seq in begun}
        late: dict[int, dict[int, int]] = defaultdict(dict)  # rank, sequence
        for seq, by_rank in complete.items():
            last = min(by_rank, key=by_rank.__getitem__)
            late[last][seq] = round(lateness_of(by_rank, last))
        if len(complete) < FEWEST_COLLECTIVES:
            continue
        everything = sum(sum(times.values()) for times in late.values())
        rank, delays = max(late.items(), key=lambda item: sum(item[1].values()))
        if sum(delays.values()) >= LEAST_SHARE * everything:
            found += _delay(evidence, group, rank, delays)
    return found


def _delay(evidence: Evidence, group: Group, rank: int, delays: dict[int, int]) -> list[Verdict]:
    longest = sorted(delays.values())[-2:]
    alike = {seq: ns for seq, ns in delays.items() if ns >= max(_ALIKE * longest[0], LEAST_LATENESS_NS)}
    if len(longest) < 2 or len(alike) < FEWEST_COLLECTIVES // 2:
        return []
    calls = evidence.logs[rank].collectives
    first = next(c for c in calls if c.group == group.name and not c.is_p2p and c.identity.seq == min(alike))
    earlier = [c for c in calls if c.record_id < first.record_id]
    before = max(earlier, key=lambda c: c.record_id) if earlier else None
    within_ns = max(c.time_completed_ns or 0 for c in calls) - _begin_ns(first, before)
    waited_ns = sum(alike.values())
    if waited_ns < max(LEAST_OF_THE_TIME * within_ns, LEAST_WAITED_NS):
        return []
    return [
        Delay(
            certainty=Certainty.LIKELY,
            began_wall_ns=evidence.wall_ns(rank, first.time_created_ns),
            ranks=(rank,),
            group=group,
            times=len(alike),
            waited_ns=waited_ns,
            within_ns=within_ns,
            first=Call(rank=rank, collective=first),
            before=None if before is None else Call(rank=rank, collective=before),
        )
    ]


def _begun(evidence: Evidence, group: str) -> set[int]:
    """Sequences that come after the first step."""
    logs = evidence.logs.values()
    return {c.identity.seq for log in logs for c in log.collectives if c.group == group and c.moment.step}


def _begin_ns(first: Collective, before: Collective | None) -> int:
    return first.time_created_ns if before is None else before.time_completed_ns or before.time_created_ns
