"""Where the first NaN or Inf came from: the rank that sent it although all it had received before was finite.

From a rank's first made-up answer on nothing is concluded from its values: they may stand on that answer.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import pairwise
from typing import Any

import numpy as np

from prismdbg.diagnosis.collective_key import CollectiveKey, collective_key
from prismdbg.diagnosis.cross_rank import groups, rows_of
from prismdbg.diagnosis.evidence import Evidence
from prismdbg.diagnosis.nonfinite_spans import Span, find_spans, rows_with_some
from prismdbg.diagnosis.skipped_steps import are_unknown, ended_steps, got_over, last_taken, skipped, skipped_first
from prismdbg.diagnosis.verdict import Call, Certainty, Verdict
from prismdbg.diagnosis.wording import place, rank_list
from prismdbg.log.columns import NOT_ENDED, Bools, LogColumns
from prismdbg.log.step_rows import Rows
from prismdbg.model.collective import Collective, Group, State
from prismdbg.model.moment import Moment
from prismdbg.model.ops import FROM_ROOT, OPS, REDUCTIONS, Movement
from prismdbg.model.plurals import counted

_LATER = 4  # skipped steps that are told one by one
_GONE = 3  # spans that are over and are told
_SKIPPED_PERHAPS = "only a summary of its step is left; it does not say whether a gradient scaler skipped the step"
_EARLIER = "only a summary of earlier steps with NaN or Inf was read; it does not say where they came from"
LATE_NS = 2_000_000  # times of a device's ends are at most that much late


class Birth(StrEnum):
    SENT = "sent"  # by this rank, which had received nothing of the kind
    UNSEEN = "unseen"  # by a rank whose log is not here, or does not say what it sent
    REDUCED = "reduced"  # by nobody: every rank sent finite values, the result is not


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstNonfinite(Verdict):
    """`call`: the first to send it, or else the first to receive it. `others` sent it on their own account, too.

    received: ranks that only passed on what they had received, or received it and sent none.
    was_skipped: a gradient scaler then skipped the optimizer on the rank of `call`; was_another: not the first one,
    with which steps end; lasted: it took no step after that. have_logs: some of the suspects do;
    late_logs: those whose logs do not start at the beginning, where others have none.
    later: the first ones of later steps that a scaler skipped, after steps that it took; `more_later`: how many others.
    came_again: the first call with some in a step that was taken, before any step was without. not_looked_at: what was
    sent before it, or what its rank received, is not all known. doubt: a sentence on what a summary does not say.
    """

    birth: Birth
    call: Call
    group: Group
    key: CollectiveKey
    others: tuple[Call, ...]
    received: tuple[Call, ...]
    suspects: tuple[int, ...]
    was_skipped: bool
    was_another: bool = False
    have_logs: bool = False
    late_logs: tuple[int, ...] = ()
    lasted: bool = False
    later: tuple[FirstNonfinite, ...] = ()
    more_later: int = 0
    came_again: Call | None = None
    not_looked_at: bool = False
    doubt: str = ""

    kind = "nonfinite"

    @property
    def moment(self) -> Moment:
        return self.call.collective.moment

    @property
    def text(self) -> str:
        call = self.call.collective
        where = f"{call.name} (group {self.group.title} {self.key}, {call.moment}){place(call)}"
        match self.birth:
            case Birth.SENT:
                return f"{self._what}: {where}"
            case Birth.UNSEEN:
                unseen = "whose data was not seen" if self.have_logs else "without a log"
                return f"{self._what}, {unseen}, in {where}"
            case Birth.REDUCED:
                return f"{self._what}: every rank sent finite values in {where}"

    @property
    def _what(self) -> str:
        match self.birth:
            case Birth.SENT:
                return f"rank {self.call.rank} sent the first NaN or Inf"
            case Birth.UNSEEN:
                return f"the first NaN or Inf came from {_one_of(self.suspects)}"
            case Birth.REDUCED:
                return "the first NaN or Inf was produced by a reduction"

    @property
    def brief(self) -> str:
        call, source = self.call.collective, self.call.collective.source
        where = f"{source.filename.rpartition('/')[2]}:{source.line}" if source is not None else ""
        return " · ".join(filter(None, (self._what, call.name, where)))

    @property
    def aside(self) -> str:
        if self.birth is not Birth.SENT:
            return ""
        if self.suspects:
            return f"{rank_list(self.suspects)} may have sent it earlier"
        return f"only received by {rank_list(call.rank for call in self.received)}" if self.received else ""

    @property
    def short_aside(self) -> str:
        only_received = self.birth is Birth.SENT and self.received and not self.suspects
        return f"received by {' '.join(str(call.rank) for call in self.received)}" if only_received else self.aside

    @property
    def lines(self) -> tuple[str, ...]:
        lines = [f"also produced one itself: {call.text}" for call in self.others]
        lines += [f"only received it: {call.text}" for call in self.received]
        if self.was_skipped:
            what = "one of its optimizers" if self.was_another else "the optimizer"
            parameters = "that optimizer's parameters" if self.was_another else "the parameters"
            lines.append(
                f"the gradient scaler of rank {self.call.rank} skipped {what} at the end of step "
                f"{self.moment.step}, as it does when scaled gradients overflow: {parameters} did not change"
                + ", and it took no step after that"
                * self.lasted
            )
        if self.came_again is not None:
            lines.append(f"NaN or Inf came again in a step that was not skipped: {self.came_again.text}")
        lines += [f"later, in step {each.moment.step}, which was skipped, too: {each.text}" for each in self.later]
        if self.more_later:
            lines.append(
                f"{counted(self.more_later, 'more skipped step')} with NaN or Inf came after steps that were taken"
            )
        if self.birth is Birth.SENT and self.suspects:
            without = [rank for rank in self.suspects if rank not in self.late_logs]
            lack = [f"the logs of {rank_list(without)} are not here"] if without else []
            if self.late_logs:
                lack.append(f"the logs of {rank_list(self.late_logs)} do not start at the beginning")
            lines.append(f"{'; '.join(lack)}: these ranks may have sent it earlier")
        if self.not_looked_at:
            lines.append("some data sent earlier was not checked: the first NaN or Inf may have been in it")
        if self.doubt:
            lines.append(self.doubt)
        if self.birth is Birth.UNSEEN and _may_overflow(self.call.collective):
            lines.append("the reduction itself may have overflowed")
        return tuple(lines)

    def details(self) -> dict[str, Any]:
        return {
            "birth": str(self.birth),
            "group": self.group.name,
            "sequence": self.key.seq,
            "call": self.call.to_json(),
            "others": [call.to_json() for call in self.others],
            "received": [call.to_json() for call in self.received],
            "suspects": list(self.suspects),
            "skipped_by_scaler": self.was_skipped,
            "lasted": self.lasted,
            "came_again": self.came_again.to_json() if self.came_again is not None else None,
            "later": [{"ranks": list(each.ranks), "call": each.call.to_json()} for each in self.later],
        }


def find_nonfinite(evidence: Evidence) -> list[Verdict]:
    """Of the first that lasted; and, as hints, of the first of all and of some that were gone after a while: a gradient
    scaler skipped them and got over it, or steps without any came after them."""
    everything = {rank: np.ones(len(log), dtype=np.bool_) for rank, log in evidence.columns.items()}
    found = _first(evidence, everything)
    if not found:
        return []
    first = _with_later(evidence, found[0]) if found[0].was_skipped else found[0]
    over = {rank: _got_over(log) for rank, log in evidence.columns.items()}
    lasts = {rank: ~np.isin(log.step, list(over[rank])) for rank, log in evidence.columns.items()}
    rows = {rank: rows_with_some(log, over[rank]) for rank, log in evidence.columns.items()}
    calls = {rank: lasts[rank] & _believed(log) & log.nonfinite for rank, log in evidence.columns.items()}
    spans = find_spans(evidence, calls, rows)
    lasting = [one for span in spans[-1:] if not span.is_over for one in _lasting(evidence, span, lasts, rows)]
    if lasting and lasting[0].call == first.call:
        same = replace(first, certainty=lasting[0].certainty, came_again=lasting[0].came_again, doubt=lasting[0].doubt)
        return [same]
    gone = [one for span in spans[:_GONE] if span.is_over for one in _first(evidence, _rows_of(evidence, span, lasts))]
    hints = [replace(one, certainty=Certainty.HINT) for one in (first, *gone) if one is first or one.call != first.call]
    return [*lasting, *hints]


def _rows_of(evidence: Evidence, span: Span, lasts: Mapping[int, Bools]) -> dict[int, Bools]:
    return {rank: lasts[rank] & span.rows(log) for rank, log in evidence.columns.items()}


def _lasting(
    evidence: Evidence, span: Span, lasts: Mapping[int, Bools], rows: Mapping[int, Rows]
) -> Iterator[FirstNonfinite]:
    """The first one in the span that goes on; not certain where a summary leaves a doubt."""
    among = _rows_of(evidence, span, lasts)
    for one in _first(evidence, among):
        first, log = _with_its_return(evidence, one, among), evidence.columns[one.call.rank]
        doubt = _SKIPPED_PERHAPS if are_unknown(log, one.moment.step) else ""
        if any(span.has_earlier_row(each, rows[rank], first.began_wall_ns) for rank, each in evidence.columns.items()):
            doubt = _EARLIER
        certainty = Certainty.LIKELY if doubt and first.certainty is Certainty.CERTAIN else first.certainty
        yield replace(first, certainty=certainty, doubt=doubt)


def _with_later(evidence: Evidence, first: FirstNonfinite) -> FirstNonfinite:
    """With what came after it and was skipped, too: it may be no overflow."""
    log = evidence.columns[first.call.rank]
    of_skipped = skipped(log)
    ended = [step for step, _ in ended_steps(log)]
    began = [step for before, step in pairwise(ended) if step in of_skipped and before not in of_skipped]
    taken = last_taken(log)
    later = [step for step in began if first.moment.step < step < taken]
    found = [
        _first(evidence, {r: each.step == step for r, each in evidence.columns.items()}) for step in later[:_LATER]
    ]
    told = tuple(verdict for one in found for verdict in one)
    return replace(first, later=told, more_later=len(later[_LATER:]))


def _with_its_return(evidence: Evidence, first: FirstNonfinite, lasts: Mapping[int, Bools]) -> FirstNonfinite:
    """Of a step that was skipped: with the first call in a step that was not, if there is one."""
    if not first.was_skipped:
        return first
    taken = {rank: lasts[rank] & ~np.isin(log.step, list(skipped(log))) for rank, log in evidence.columns.items()}
    again = _first(evidence, taken)
    return replace(first, came_again=again[0].call) if again else first


def _got_over(log: LogColumns) -> set[int]:
    """Steps that a gradient scaler skipped and got over, and those in which something was left of them."""
    return got_over(log, _believed(log) & log.nonfinite)


def _first(evidence: Evidence, among: Mapping[int, Bools]) -> list[FirstNonfinite]:
    """One verdict at most. among: the calls that are looked at, of each rank."""
    logs = evidence.columns.items()
    sent = {rank: call for rank, log in logs if (call := _first_sent(log, among[rank])) is not None}
    received = {rank: call for rank, log in logs if (call := _first_received(log, among[rank])) is not None}
    on_their_own = {rank: call for rank, call in sent.items() if not _had_received(call, received.get(rank))}
    if on_their_own:
        return [_sent(evidence, on_their_own, received)]
    if received:
        return [_not_sent(evidence, received)]
    return []


def _believed(log: LogColumns) -> Bools:
    """Which were issued before anything was synthesized."""
    first = log.ended_ns[log.synthesized & (log.ended_ns != NOT_ENDED)].min(initial=np.iinfo(np.int64).max)
    believed: Bools = ~log.synthesized & (log.begun_ns < first)
    return believed


def _first_sent(log: LogColumns, among: Bools) -> Collective | None:
    rows = np.flatnonzero(among & _believed(log) & log.nonfinite & log.sent_nonfinite)
    return log.collective(int(rows[0])) if len(rows) else None


def _first_received(log: LogColumns, among: Bools) -> Collective | None:
    received = log.nonfinite & log.received_nonfinite & (log.ended_ns != NOT_ENDED)
    rows = np.flatnonzero(among & _believed(log) & received)
    return log.collective(int(rows[log.ended_ns[rows].argmin()])) if len(rows) else None


def _completed_ns(call: Collective) -> int:
    return call.time_completed_ns or 0


def _had_received(sent: Collective, received: Collective | None) -> bool:
    """On a device, calls are issued long before they begin: there, an earlier call had ended before this one sent."""
    if received is None:
        return False
    if sent.is_on_device or received.is_on_device:
        return received.record_id < sent.record_id and _completed_ns(received) - LATE_NS <= sent.sent_ns
    return _completed_ns(received) <= sent.time_created_ns


def _sent(evidence: Evidence, own: dict[int, Collective], received: dict[int, Collective]) -> FirstNonfinite:
    order = _in_order(evidence, {rank: (call, call.sent_ns) for rank, call in own.items()})
    first = order[0]
    suspects = tuple(_without_beginning(evidence))
    counts = _all_count_steps(evidence, order)
    together = [rank for rank in order[1:] if not counts or own[rank].moment.step == own[first].moment.step]
    not_looked_at = _was_not_looked_at(evidence, Call(rank=first, collective=own[first]))
    return _verdict(
        evidence,
        birth=Birth.SENT,
        certainty=Certainty.LIKELY if together or suspects or not_looked_at else Certainty.CERTAIN,
        not_looked_at=not_looked_at,
        first=Call(rank=first, collective=own[first]),
        others=tuple(Call(rank=rank, collective=own[rank]) for rank in order[1:]),
        received=_calls({rank: call for rank, call in received.items() if rank not in own}),
        suspects=suspects,
        late_logs=tuple(rank for rank in suspects if rank in evidence.logs),
    )


def _in_order(evidence: Evidence, calls: Mapping[int, tuple[Collective, int]]) -> list[int]:
    """The ranks by when it was in their calls: by step where all count steps, then by time, and by moment where the
    times of devices do not tell. calls: each with that time."""
    counts = _all_count_steps(evidence, calls)
    when = {rank: (call.moment.step if counts else 0, evidence.wall_ns(rank, ns)) for rank, (call, ns) in calls.items()}
    order = sorted(calls, key=when.__getitem__)
    step, until_ns = when[order[0]][0], when[order[0]][1] + LATE_NS
    close = [rank for rank in order if when[rank] <= (step, until_ns)]
    if not counts or not any(calls[rank][0].is_on_device for rank in close):
        return order
    return sorted(close, key=lambda rank: calls[rank][0].moment) + order[len(close) :]


def _all_count_steps(evidence: Evidence, ranks: Iterable[int]) -> bool:
    """Alike: of the ranks of a pipeline one may count two steps where the other counts one. Or none does: a rank
    without an optimizer is in step 0 for ever, which says nothing beside others."""
    among = list(ranks)
    if len({bool(evidence.columns[rank].step.max(initial=0) or evidence.logs[rank].steps) for rank in among}) > 1:
        return False
    last = [int(evidence.columns[rank].step.max(initial=0)) for rank in among]
    return max(last) - min(last) <= 1 or _were_in_one_step(evidence, among)


def _were_in_one_step(evidence: Evidence, ranks: Sequence[int]) -> bool:
    """In the last collective that all of them issued, after the first step."""
    for group in groups(evidence):
        rows = rows_of(evidence, group)
        if not all(rank in rows for rank in ranks):
            continue
        of_rank = {rank: (evidence.columns[rank], rows[rank]) for rank in ranks}
        sequences = [log.seq[own] for log, own in of_rank.values()]
        if common := set(sequences[0].tolist()).intersection(*(seq.tolist() for seq in sequences[1:])):
            last = max(common)
            steps = {int(log.step[own[log.seq[own] == last][-1]]) for log, own in of_rank.values()}
            if len(steps) == 1 and steps != {0}:
                return True
    return False


def _was_not_looked_at(evidence: Evidence, first: Call) -> bool:
    """On a device there may be no room to look at what is sent; an operator that is not known is not recorded."""
    until_ns = first.collective.sent_ns
    if any(note.kind == "unknown" and note.time_ns <= until_ns for note in evidence.logs[first.rank].notes):
        return True
    until_wall_ns = evidence.wall_ns(first.rank, until_ns)
    return any(_sent_unseen(evidence, rank, until_wall_ns) for rank in evidence.logs)


def _sent_unseen(evidence: Evidence, rank: int, until_wall_ns: int) -> bool:
    """Whether it sent something by then of which its log does not say whether it was finite."""
    log = evidence.columns[rank]
    rows = np.flatnonzero(log.on_device & ~log.has_fingerprint & (log.ended_ns != NOT_ENDED))
    rows = rows[log.begun_ns[rows] + evidence.wall_ns(rank, 0) < until_wall_ns]
    if not len(rows) or not log.has_fingerprint.any():  # none: recorded without fingerprints, which says what is finite
        return False
    kinds = np.stack([log.op[rows], log.group[rows], log.root[rows]], axis=1)
    _, firsts = np.unique(kinds, axis=0, return_index=True)
    return any(_sends(evidence, rank, log.collective(int(rows[at]))) for at in firsts)


def _sends(evidence: Evidence, rank: int, call: Collective) -> bool:
    group = evidence.group(call.group)
    is_data = call.op in OPS and OPS[call.op].movement is not Movement.BARRIER and bool(call.inputs or call.outputs)
    return is_data and rank in _senders(call, collective_key(call, rank, group), group)


def _may_overflow(call: Collective) -> bool:
    is_reduction = call.op in OPS and OPS[call.op].movement in REDUCTIONS
    return is_reduction and call.reduce_op not in ("MIN", "MAX")


def _not_sent(evidence: Evidence, received: dict[int, Collective]) -> FirstNonfinite:
    """Nobody whose log is here sent it first: another member did, or the reduction itself overflowed."""
    first = _in_order(evidence, {rank: (call, _completed_ns(call)) for rank, call in received.items()})[0]
    group = evidence.group(received[first].group)
    without_log = tuple(rank for rank in group.ranks if rank not in evidence.logs)
    unseen = tuple(_unseen(evidence, Call(rank=first, collective=received[first])))
    suspects = (*without_log, *unseen)
    sure = without_log and not unseen and not any(_without_beginning(evidence, known_only=True))
    sure = sure and not _may_overflow(received[first])
    return _verdict(
        evidence,
        birth=Birth.UNSEEN if suspects or not group.ranks else Birth.REDUCED,
        certainty=Certainty.CERTAIN if sure and len(without_log) == 1 else Certainty.LIKELY,
        not_looked_at=False,
        first=Call(rank=first, collective=received[first]),
        others=(),
        received=_calls(received),
        suspects=tuple(sorted(suspects)),
        have_logs=bool(unseen),
    )


def _unseen(evidence: Evidence, received: Call) -> Iterator[int]:
    """Members that sent something in this call, of which their logs do not say whether it was finite."""
    group = evidence.group(received.collective.group)
    key = collective_key(received.collective, received.rank, group)
    for rank in _senders(received.collective, key, group):
        if rank in evidence.logs and not _is_seen(evidence, rank, key, group):
            yield rank


def _senders(call: Collective, key: CollectiveKey, group: Group) -> tuple[int, ...]:
    if key.is_p2p:
        return key.members(group)[:1]
    from_root = call.op in OPS and OPS[call.op].movement in FROM_ROOT and 0 <= call.root < group.size
    return (group.ranks[call.root],) if from_root else group.ranks


def _is_seen(evidence: Evidence, rank: int, key: CollectiveKey, group: Group) -> bool:
    """On a device what is sent is known from the end. A log that goes on later has the first NaN in its summary."""
    log = evidence.columns[rank]
    rows = rows_of(evidence, key.group, p2p=key.is_p2p).get(rank, np.zeros(0, dtype=np.int64))
    same = (log.collective(int(row)) for row in rows[log.seq[rows] == key.seq])
    call = next((call for call in same if collective_key(call, rank, group) == key), None)
    if call is None:
        return bool((log.seq[rows] > key.seq).any())
    is_told = call.state is State.COMPLETED and not log.has_fingerprint.any()  # recorded without fingerprints
    return not call.is_on_device or call.fingerprint is not None or is_told


def _verdict(
    evidence: Evidence,
    *,
    birth: Birth,
    certainty: Certainty,
    first: Call,
    others: tuple[Call, ...],
    received: tuple[Call, ...],
    suspects: tuple[int, ...],
    not_looked_at: bool,
    have_logs: bool = False,
    late_logs: tuple[int, ...] = (),
) -> FirstNonfinite:
    call, log = first.collective, evidence.columns[first.rank]
    group = evidence.group(call.group)
    blamed = suspects if birth is Birth.UNSEEN else (first.rank, *(other.rank for other in others))
    return FirstNonfinite(
        certainty=certainty,
        began_wall_ns=evidence.wall_ns(first.rank, call.time_created_ns),
        ranks=blamed,
        birth=birth,
        call=first,
        group=group,
        key=collective_key(call, first.rank, group),
        others=others,
        received=received,
        suspects=suspects,
        have_logs=have_logs,
        late_logs=late_logs,
        not_looked_at=not_looked_at,
        was_skipped=call.moment.step in skipped(log),
        was_another=call.moment.step in skipped(log) - skipped_first(log),
        lasted=last_taken(log) <= call.moment.step,
    )


def _without_beginning(evidence: Evidence, known_only: bool = False) -> Iterator[int]:
    """Ranks that may have sent or received something that no log here shows."""
    for rank in range(evidence.known_world_size):
        log = evidence.logs.get(rank)
        if log is None:
            if not known_only:
                yield rank
        elif log.dropped and evidence.columns[rank].unknown:  # a summary has the first NaN or Inf
            yield rank


def _calls(found: dict[int, Collective]) -> tuple[Call, ...]:
    return tuple(Call(rank=rank, collective=found[rank]) for rank in sorted(found))


def _one_of(ranks: tuple[int, ...]) -> str:
    if not ranks:
        return "a rank"
    return rank_list(ranks) if len(ranks) == 1 else f"one of {rank_list(ranks)}"
