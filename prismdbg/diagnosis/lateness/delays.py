"""A rank that keeps the others waiting from some place on, often or for long: a job that got slow. By waits, not by
clocks, as in `stragglers`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prismdbg.diagnosis.cross_rank import at_seqs, rows_of
from prismdbg.diagnosis.evidence import Evidence
from prismdbg.diagnosis.lateness.cause import LateCause, lines_of
from prismdbg.diagnosis.lateness.stragglers import FEWEST_COLLECTIVES, LEAST_LATENESS_NS, waits_by_group
from prismdbg.diagnosis.verdict import Call, Certainty, Verdict
from prismdbg.log.segment import Ints
from prismdbg.model.collective import Collective, Group
from prismdbg.model.durations import brief
from prismdbg.model.moment import Moment
from prismdbg.model.plurals import counted

LEAST_SHARE = 0.75  # of all that ranks of the group waited for one another
LEAST_OF_THE_TIME = 0.1  # since the first delay
LEAST_WAITED_NS = 100_000_000  # in all: less is no reason to look for anything
_ALIKE = 0.25  # of the longest but one: what counts as one of these delays
_ABOVE_OTHERS = 2.0  # so many times what others are late, all but a few of them: how the delays may have begun
_ALL_BUT_A_FEW = 0.95
_OF_THE_SHORTEST = 0.5  # of these delays: what counts as one between them
_NEAR = 2  # times as far from the next delay as delays usually are


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
    cause: LateCause | None = None

    kind = "delay"

    @property
    def moment(self) -> Moment:
        return self.first.collective.moment

    @property
    def text(self) -> str:
        where = f"in {counted(self.times, 'collective')} of group {self.group.title} from {self.moment} on"
        much = f"{brief(self.waited_ns)} (of {brief(self.within_ns)})"
        return f"the others waited {much} for rank {self.ranks[0]}, {where}"

    @property
    def lines(self) -> tuple[str, ...]:
        lines = [f"it first came late to: {self.first.text}"]
        if self.before is not None:
            lines.append(f"its delay begins after: {self.before.text}")
        return (*lines, *lines_of(self.cause))

    def details(self) -> dict[str, Any]:
        return {
            "group": self.group.name,
            "times": self.times,
            "waited_ns": self.waited_ns,
            "within_ns": self.within_ns,
            "first": self.first.to_json(),
            "before": None if self.before is None else self.before.to_json(),
            "cause": self.cause and self.cause.to_json(),
        }


def find_delays(evidence: Evidence) -> list[Delay]:
    """One rank a group at most. Until the first step is complete ranks wait for those that started later."""
    found: list[Delay] = []
    for name, waits in waits_by_group(evidence).items():
        begun = np.isin(waits.seqs, _begun(evidence, name))
        if begun.sum() < FEWEST_COLLECTIVES:
            continue
        last, late_ns = waits.last, waits.late_ns
        late = [np.where(begun & (last == place), late_ns, 0) for place in range(len(waits.ranks))]
        sums = [float(each.sum()) for each in late]
        place = int(np.argmax(sums))
        if sums[place] >= LEAST_SHARE * sum(sums):
            of_it = begun & (last == place)
            others = _Others(seqs=waits.seqs[begun & ~of_it], late_ns=late_ns[begun & ~of_it])
            found += _delay(evidence, name, waits.ranks[place], waits.seqs[of_it], late[place][of_it], others)
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class _Others:
    """By how much other ranks were late, in each of `seqs`."""

    seqs: Ints
    late_ns: Ints

    def usual_ns(self, before: int) -> float | None:
        """What few of them exceeded before a sequence; None where too few were late."""
        late_ns = self.late_ns[self.seqs < before]
        return float(np.quantile(late_ns, _ALL_BUT_A_FEW)) if len(late_ns) >= FEWEST_COLLECTIVES else None


def _with_shorter(seqs: Ints, late_ns: Ints, alike: NDArray[np.bool_], others: _Others) -> NDArray[np.bool_]:
    """`alike`, what came before, without a gap, and was no usual lateness either, and shorter ones between: delays grow
    where the machine gets busier, and the first of them says where they begin."""
    first = int(np.argmax(alike))
    usual_ns = others.usual_ns(int(seqs[first]))
    if usual_ns is None:
        return alike
    least_ns = max(_ABOVE_OTHERS * usual_ns, LEAST_LATENESS_NS)
    near = _NEAR * float(np.median(np.diff(seqs[alike])))
    found = alike.copy()
    for place in range(first - 1, -1, -1):
        if seqs[first] - seqs[place] > near:
            break
        if late_ns[place] >= least_ns:
            found[place], first = True, place
    least_ns = max(least_ns, _OF_THE_SHORTEST * float(late_ns[found].min()))
    found |= (seqs > seqs[first]) & (late_ns >= least_ns)
    return found


def _delay(evidence: Evidence, name: str, rank: int, seqs: Ints, late_ns: Ints, others: _Others) -> list[Delay]:
    """`late_ns`: by how much the rank was late in each of `seqs`."""
    if len(seqs) < 2:
        return []
    alike = late_ns >= max(_ALIKE * float(np.sort(late_ns)[-2]), LEAST_LATENESS_NS)
    if alike.sum() < FEWEST_COLLECTIVES // 2:
        return []
    alike = _with_shorter(seqs, late_ns, alike, others)
    log = evidence.columns[rank]
    row = int(at_seqs(log, rows_of(evidence, name)[rank], seqs[alike][:1])[0])
    first = log.collective(row)
    before = log.collective(row - 1) if row else None
    within_ns = int(log.ended_ns.max()) - _begin_ns(first, before, round(float(late_ns[alike][0])))
    waited_ns = round(float(late_ns[alike].sum()))
    if waited_ns < max(LEAST_OF_THE_TIME * within_ns, LEAST_WAITED_NS):
        return []
    return [
        Delay(
            certainty=Certainty.LIKELY,
            began_wall_ns=evidence.wall_ns(rank, first.time_created_ns),
            ranks=(rank,),
            group=evidence.group(name),
            times=int(alike.sum()),
            waited_ns=waited_ns,
            within_ns=within_ns,
            first=Call(rank=rank, collective=first),
            before=None if before is None else Call(rank=rank, collective=before),
        )
    ]


def _begun(evidence: Evidence, group: str) -> Ints:
    """Sequences that come after the first step, on any rank."""
    logs = [(evidence.columns[rank], rows) for rank, rows in rows_of(evidence, group).items()]
    return np.concatenate([log.seq[rows[log.step[rows] > 0]] for log, rows in logs])


def _begin_ns(first: Collective, before: Collective | None, late_ns: int) -> int:
    """Not after the others began to wait."""
    waited_from_ns = first.time_created_ns - late_ns
    return waited_from_ns if before is None else min(before.time_completed_ns or before.time_created_ns, waited_from_ns)
