"""Does a log hold what a replay needs: every collective, and what each of them received? One rule for all who ask:
who makes a capsule, who verifies it, and who replays it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Collection
from dataclasses import dataclass

from prismdbg.capsule import checked_json, layout
from prismdbg.capsule.capsule_dir import Capsule
from prismdbg.capsule.incident_traits import TRAITS
from prismdbg.capsule.log.events import RankLog
from prismdbg.capsule.manifest import IncidentKind, Origin
from prismdbg.model.collective import Collective, Group, PayloadRef, State, runs_of
from prismdbg.model.moment import Moment
from prismdbg.model.ops import TO_ROOT, Movement, ops_of

_BROADCASTS = ops_of(Movement.BROADCAST)
_TO_ROOT = ops_of(*TO_ROOT)
Holds = Callable[[PayloadRef], bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class StartPoint:
    """Where the rank stood at the start moment. past_records: how many collectives it had issued; in_flight: which of
    these were not complete, and so are answered in the replay."""

    past_records: int = 0
    in_flight: Collection[int] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """What a replay goes through. records: the collectives from the start to the end moment, in the order of issue;
    in_flight: those issued before and answered in it. goes_on: the log holds a collective after the end moment."""

    past_records: int
    records: tuple[Collective, ...]
    in_flight: tuple[Collective, ...]
    goes_on: bool

    @property
    def end_record(self) -> int:
        return self.records[-1].record_id if self.records else self.past_records - 1

    @property
    def answered(self) -> bool:
        """Whether all of it was complete when the record ended."""
        return not self.unanswered

    @property
    def unanswered(self) -> tuple[Collective, ...]:
        """What was in flight when the record ended, in the order of its issue."""
        return tuple(record for record in (*self.in_flight, *self.records) if record.state is State.SCHEDULED)

    def whole_steps(self, end: Moment) -> int:
        """How many steps before the one of `end` are in it from their first collective on."""
        if not self.records:
            return 0
        first = self.records[0].moment
        return max(end.step - first.step - (first.collective > 1), 0)


def ends_its_step(log: RankLog, span: Span, end: Moment) -> bool:
    """Whether the log shows that the step of `end`, the end moment, was over: a later one began, and no collective of
    this one came after it."""
    row = row_of(log, span.end_record + 1)
    if row < len(log.collectives):
        return log.collectives[row].moment.step > end.step
    return bool(log.steps) and log.steps[-1].step > end.step


NO_STEP_BEFORE = (
    "this capsule starts in the step of its incident, so the replay does not show the steps before it; to start "
    "earlier, record with --checkpoint-every STEPS or, if that took no checkpoint early enough, with --window all and "
    "capture with --origin start"
)
NOTHING_TO_COMPARE = "the rank issued no collective between the start and the end moment"


def starts_too_late(incident: IncidentKind, origin: Origin, span: Span, end: Moment) -> bool:
    """Whether the replay of a capsule of an incident goes through no whole step before the incident's, though another
    checkpoint would have led through one."""
    has_earlier = end.step > 0 and span.whole_steps(end) == 0
    return has_earlier and origin is Origin.IMAGE and TRAITS[incident].ends_the_log


def span_of(log: RankLog, start: StartPoint, end: Moment | None) -> Span:
    """`end`: None for the whole log."""
    issued = log.collectives
    first = row_of(log, start.past_records)
    mine = issued[first:]
    records = tuple(c for c in mine if end is None or c.moment <= end)
    open_rows = [row_of(log, number) for number in sorted(set(start.in_flight)) if number < start.past_records]
    open_ones = (issued[row] for row in open_rows if row < first)
    return Span(
        past_records=start.past_records,
        records=records,
        in_flight=tuple(c for c in open_ones if c.record_id in start.in_flight),
        goes_on=len(records) < len(mine),
    )


def row_of(log: RankLog, record_id: int) -> int:
    """Where in `log.collectives` this record is, or the next one that there is. Does not look at all of them."""
    return bisect_left(log.collectives, record_id, key=lambda c: c.record_id)


def capsule_span(capsule: Capsule, log: RankLog) -> Span:
    """Of the capsule whose log this is. `CapsuleError` as `start_of`."""
    return span_of(log, start_of(capsule), capsule.manifest.moment_b)


def start_of(capsule: Capsule) -> StartPoint:
    """`CapsuleError` where the capsule does not say where the rank stood."""
    rank = checked_json.read(capsule.path / layout.RANK)
    return StartPoint(
        past_records=rank.integer("past_records") if rank.has("past_records") else 0,
        in_flight=rank.integers("in_flight") if rank.has("in_flight") else (),
    )


def replayable_from(log: RankLog, span: Span, here: Moment, holds: Holds) -> Moment:
    """The first moment from which everything the rank received is held; past the end moment where nothing is. `here`:
    where the rank stands if the span has no collective."""
    moments = [record.moment for record in span.records] or [here]
    last = moments[-1]
    starts = [*moments, Moment(last.step, last.collective + 1)]
    lost = [number for number, c in enumerate(span.records, 1) if _lacks(c, log, holds)]
    if any(_lacks(c, log, holds) for c in span.in_flight):
        lost.append(1)
    return starts[max(lost, default=0)]


def needs_payload(collective: Collective, log: RankLog) -> bool:
    """Whether a replay can answer it only with the bytes that were received."""
    if collective.state is not State.COMPLETED or collective.can_be_made_again:
        return False
    return receives(collective, log.rank, log.groups.get(collective.group))


def receives(collective: Collective, rank: int, group: Group | None) -> bool:
    """Whether the collective fills tensors on this rank; False where that cannot be known."""
    if group is None or not any(count and all(meta.shape) for meta, count in runs_of(collective.outputs)):
        return False
    root_is_me = 0 <= collective.root < group.size and group.ranks[collective.root] == rank
    if collective.op in _BROADCASTS:
        return not root_is_me
    if collective.op in _TO_ROOT:
        return root_is_me
    return True


def _lacks(collective: Collective, log: RankLog, holds: Holds) -> bool:
    return needs_payload(collective, log) and (collective.payload is None or not holds(collective.payload))
