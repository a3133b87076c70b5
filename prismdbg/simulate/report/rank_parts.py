"""What one rank's iteration is made of, on its main stream: computing, transfers it stood for, waiting for others."""

from __future__ import annotations

from dataclasses import dataclass

from prismdbg.model.schedule import MAIN, RowKind, Schedule
from prismdbg.simulate.engine.timeline import RankTimeline
from prismdbg.simulate.graph.entries import Kind

ITERATION = "iteration"


@dataclass(frozen=True, slots=True, kw_only=True)
class RankParts:
    """Nanoseconds. shown_ns: transfer that nothing hid. waited_ns: until the last of the others was there."""

    computed_ns: int
    shown_ns: int
    waited_ns: int

    @property
    def by_component(self) -> dict[str, int]:
        """In the words of a fidelity report."""
        return {
            "computation": self.computed_ns,
            "exposed communication": self.shown_ns,
            "waiting": self.waited_ns,
        }

    def moved(self, other: RankParts, share: float) -> RankParts:
        """From these to `other`, so far: 0 is here, 1 is there; it may go on, or the other way."""
        return RankParts(
            computed_ns=moved_ns(self.computed_ns, other.computed_ns, share),
            shown_ns=moved_ns(self.shown_ns, other.shown_ns, share),
            waited_ns=moved_ns(self.waited_ns, other.waited_ns, share),
        )


def moved_ns(here_ns: int, there_ns: int, share: float) -> int:
    return max(here_ns + round((there_ns - here_ns) * share), 0)


def simulated_parts(of_rank: RankTimeline, schedule: Schedule) -> RankParts:
    """`schedule`: of this very timeline. They add up to its iteration."""
    ends = of_rank.end_ns[of_rank.entries.kind != Kind.MEMORY].tolist()
    computed_ns = shown_ns = waited_ns = clock_ns = 0
    for row, end_ns in zip(schedule.rows, ends, strict=True):
        if row.kind is RowKind.COMPUTE:
            if row.stream == MAIN:
                computed_ns += row.duration_ns
                clock_ns = end_ns
            continue
        holds_main = row.stream == MAIN or (row.blocking and row.issuer == MAIN)
        if not holds_main:
            continue
        transfer_ns = row.transfer_ns if row.is_call else schedule.rows[row.target].transfer_ns
        stood_ns = max(end_ns - clock_ns, 0)
        shown_ns += min(stood_ns, transfer_ns)
        waited_ns += max(stood_ns - transfer_ns, 0)
        clock_ns = max(clock_ns, end_ns)
    return RankParts(computed_ns=computed_ns, shown_ns=shown_ns, waited_ns=waited_ns)
