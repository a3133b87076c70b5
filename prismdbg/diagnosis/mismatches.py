"""Ranks that called different things where they should have met: the first place in each group, side by side."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from prismdbg.diagnosis.evidence import Evidence
from prismdbg.diagnosis.match import WRONG, Match, MatchState, match, match_message, signature
from prismdbg.diagnosis.meeting import SEND, Meeting, meeting_of
from prismdbg.diagnosis.verdict import Call, Certainty, Verdict
from prismdbg.diagnosis.wording import rank_list
from prismdbg.model.collective import Collective, Group
from prismdbg.model.moment import Moment

_LOOK_AHEAD = 6
_LONGEST_SHIFT = 4

Calls = Mapping[int, Collective]  # by rank


@dataclass(frozen=True, slots=True, kw_only=True)
class Mismatch(Verdict):
    """`calls` side by side, those out of line first; `state` and `difference` are of the first against the others.

    shift: how many calls the first rank seems to have left out (or to have made too many, where negative); 0: not seen.
    """

    meeting: Meeting
    group: Group
    calls: tuple[Call, ...]
    state: MatchState
    difference: str
    has_majority: bool
    later: int
    shift: int

    kind = "mismatch"

    @property
    def moment(self) -> Moment:
        return self.calls[0].collective.moment

    @property
    def text(self) -> str:
        where = f"in group {self.group.title} {self.meeting}"
        if self.has_majority:
            return f"{rank_list(self.ranks)} issued a different call {where}: {self.difference} ({self.state})"
        return f"the ranks do not agree {where}: {self.difference} ({self.state})"

    @property
    def lines(self) -> tuple[str, ...]:
        lines = [call.text for call in self.calls]
        if self.shift:
            verb = "have skipped" if self.shift > 0 else "have issued"
            more = "" if self.shift > 0 else " more than the others"
            lines.append(
                f"rank {self.ranks[0]} seems to {verb} {_calls(abs(self.shift))}{more}: later calls match again"
            )
        if self.later:
            lines.append(f"{self.later} later collectives of this group do not match either")
        return tuple(lines)

    def details(self) -> dict[str, Any]:
        return {
            "state": str(self.state),
            "group": self.group.name,
            "sequence": self.meeting.seq,
            "shift": self.shift,
            "later": self.later,
            "calls": [call.to_json() for call in self.calls],
        }


def find_mismatches(evidence: Evidence) -> list[Verdict]:
    """At most one for each group: what comes after the first is its consequence."""
    found: list[Verdict] = []
    for name, meetings in _meetings(evidence).items():
        wrong = [(meeting, calls) for meeting, calls in meetings.items() if _is_wrong(meeting, calls)]
        if wrong:
            meeting, calls = min(wrong, key=lambda item: _began(evidence, item[1]))
            found.append(_verdict(evidence, evidence.group(name), meeting, calls, meetings, len(wrong) - 1))
    return found


def _meetings(evidence: Evidence) -> dict[str, dict[Meeting, dict[int, Collective]]]:
    """By group: who issued what where the ranks meet."""
    groups: dict[str, dict[Meeting, dict[int, Collective]]] = defaultdict(dict)
    for rank, log in evidence.logs.items():
        for collective in log.collectives:
            meeting = meeting_of(collective, rank, evidence.group(collective.group))
            groups[collective.group].setdefault(meeting, {})[rank] = collective
    return groups


def _is_wrong(meeting: Meeting, calls: Calls) -> bool:
    if len(calls) < 2:
        return False
    if meeting.is_p2p:
        return meeting.source >= 0 and _match_ends(calls).state in WRONG
    return len(set(map(signature, calls.values()))) > 1


def _match_ends(calls: Calls) -> Match:
    first, second = calls.values()
    return match_message(first, second) if first.op == SEND else match_message(second, first)


def _verdict(
    evidence: Evidence, group: Group, meeting: Meeting, calls: Calls, meetings: Mapping[Meeting, Calls], later: int
) -> Mismatch:
    votes = Counter(map(signature, calls.values())).most_common(2)
    has_majority = not meeting.is_p2p and (len(votes) == 1 or votes[0][1] > votes[1][1])
    usual = votes[0][0] if has_majority else signature(calls[min(calls)])
    right = sorted(rank for rank, call in calls.items() if signature(call) == usual)
    wrong = sorted(calls.keys() - right) if not meeting.is_p2p else sorted(calls)
    result = _match_ends(calls) if meeting.is_p2p else match(calls[right[0]], calls[wrong[0]])
    shown = wrong if meeting.is_p2p else [*wrong, *right]
    return Mismatch(
        certainty=Certainty.CERTAIN,
        began_wall_ns=_began(evidence, calls),
        ranks=tuple(wrong if has_majority else shown),
        meeting=meeting,
        group=group,
        calls=tuple(Call(rank=rank, collective=calls[rank]) for rank in shown),
        state=result.state,
        difference=result.difference,
        has_majority=has_majority,
        later=later,
        shift=_shift(meetings, meeting, wrong[0], right[0]) if has_majority else 0,
    )


def _shift(meetings: Mapping[Meeting, Calls], start: Meeting, rank: int, other: int) -> int:
    """By how many calls `rank` runs ahead of `other` from `start` on, if its next calls show that."""
    mine = _signatures(meetings, start, rank)
    theirs = _signatures(meetings, start, other)
    for shift in range(1, _LONGEST_SHIFT + 1):
        for sign, early, late in ((1, mine, theirs[shift:]), (-1, theirs, mine[shift:])):
            pairs = list(zip(early, late, strict=False))[:_LOOK_AHEAD]
            if len(pairs) > 1 and all(a == b for a, b in pairs):
                return sign * shift
    return 0


def _signatures(meetings: Mapping[Meeting, Calls], start: Meeting, rank: int) -> list[object]:
    ahead = (Meeting(start.group, start.seq + n) for n in range(_LOOK_AHEAD + _LONGEST_SHIFT))
    return [signature(meetings[meeting][rank]) for meeting in ahead if rank in meetings.get(meeting, {})]


def _began(evidence: Evidence, calls: Calls) -> int:
    return min(evidence.wall_ns(rank, call.time_created_ns) for rank, call in calls.items())


def _calls(number: int) -> str:
    return "a call" if number == 1 else f"{number} calls"
