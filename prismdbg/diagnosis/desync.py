"""Ranks that slipped out of step with their group although every call still matched another: the first place where
they were at different lines, in different steps, or passed something else.

A collective that is left out shows only later, where the next ones of the others are of another size, or at the very
end, where one is missing. Programs may call one collective from different lines on purpose, or count steps
differently; so it is said only where the ranks agreed before and never agree again, and the group did not end well. The
difference is one of calls left out or made too often, of a constant number of steps, or that one rank left a line at
which all of them had met (`line_changes`). A slip that shows at once, by another call right after it, has no more than
the lines of one call for it, so it is likely only. So is one of two ranks, of which either may be the odd one, and one
in a job that counts no steps, where two calls in another order look like one that was left out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from prismdbg.diagnosis.cross_rank import NOWHERE, Numbers, Picked, at_seqs, is_op, lines, met, ops, rows_of
from prismdbg.diagnosis.evidence import Evidence
from prismdbg.diagnosis.line_changes import first_change
from prismdbg.diagnosis.match import MAY_DIFFER
from prismdbg.diagnosis.mismatches import Mismatch
from prismdbg.diagnosis.stops import Stopped
from prismdbg.diagnosis.verdict import Call, Certainty, Verdict
from prismdbg.diagnosis.wording import rank_list
from prismdbg.log.segment import Ints
from prismdbg.model.collective import Collective, Group
from prismdbg.model.moment import Moment
from prismdbg.model.plurals import counted

LONGEST_SHIFT = 64
FEWEST_AGREEING = 2  # calls after the slip that agree when shifted
_SHOWN = 8
_STEP, _LINE = 0, 1  # of the columns of a key


class _Key(NamedTuple):
    """What ranks that are in step have in common; lines and what is passed have numbers common to all ranks."""

    step: int
    line: int
    passed: tuple[int, ...]


_Keys = Mapping[int, _Key]  # of one rank, by sequence number


@dataclass(frozen=True, slots=True, kw_only=True)
class Desync(Verdict):
    """`calls` side by side at the first sequence number where they differ, the rank that slipped first. shift: how many
    calls it left out (made too many, where negative); steps: by how many it is ahead from there on; where both are 0 it
    is at another line. explains: of the verdicts on what became of it the surest, before which it is listed.
    """

    group: Group
    sequence: int
    calls: tuple[Call, ...]
    shift: int
    steps: int
    later: int
    explains: Certainty

    kind = "slip"

    @property
    def standing(self) -> Certainty:
        return min(self.certainty, self.explains, key=lambda certainty: certainty.order)

    @property
    def moment(self) -> Moment:
        return self.calls[0].collective.moment

    @property
    def text(self) -> str:
        where = f"from group {self.group.title} #{self.sequence} on"
        if not (self.shift or self.steps):
            moved = f"{rank_list(self.ranks)} issues its collectives from a different source line than the others"
            return f"{where}, {moved}; before that, all used the same line"
        return f"{rank_list(self.ranks)} is out of step with the others {where}: {self._how()}"

    def _how(self) -> str:
        if self.shift:
            did = "skipped" if self.shift > 0 else "made"
            more = "" if self.shift > 0 else " too many"
            text = f"it seems to have {did} {counted(abs(self.shift), 'call')}{more} before that"
            other = next((call.rank for call in self.calls if call.rank not in self.ranks), None)
            if len(self.calls) > 2 or other is None:
                return text
            otherwise = "made as many too many" if self.shift > 0 else "skipped as many"
            return f"{text}, or rank {other} to have {otherwise}"
        return f"it is {counted(abs(self.steps), 'step')} {'ahead' if self.steps > 0 else 'behind'}"

    @property
    def lines(self) -> tuple[str, ...]:
        lines = [call.text for call in self.calls[:_SHOWN]]
        if self.later:
            lines.append(
                f"after that, the ranks issued {counted(self.later, 'more collective')} of this group together"
            )
        return tuple(lines)

    def details(self) -> dict[str, Any]:
        return {
            "group": self.group.name,
            "sequence": self.sequence,
            "shift": self.shift,
            "steps": self.steps,
            "later": self.later,
            "calls": [call.to_json() for call in self.calls],
        }


def find_desyncs(evidence: Evidence, verdicts: Sequence[Verdict]) -> Iterator[Desync]:
    """One a group at most, of groups of which a verdict tells that they did not end well."""
    bad: dict[str, Certainty] = {}
    blamed: dict[str, set[int]] = {}
    broken: dict[str, int] = {}  # where calls do not match
    for verdict in sorted(verdicts, key=lambda verdict: -verdict.certainty.order):
        if isinstance(verdict, Mismatch):
            if verdict.key.is_p2p:
                continue
            name, ranks = verdict.group.name, verdict.ranks
            broken[name] = verdict.key.seq
        elif isinstance(verdict, Stopped):
            name, ranks = verdict.stall.group.name, verdict.stall.never_came
        else:
            continue
        bad[name] = verdict.certainty
        blamed.setdefault(name, set()).update(ranks)
    for name, certainty in sorted(bad.items()):
        if not evidence.is_one_group(name):
            continue
        rows = rows_of(evidence, name)
        columns = _columns(evidence, rows)
        odd = (
            _out_of_step(evidence, rows, columns)
            or _at_another_line(evidence, rows, columns)
            or _just_before(evidence, rows, columns, broken.get(name), blamed[name])
        )
        if odd is not None:
            # another line or step alone tells nothing of what became of ranks that were where the others were
            is_cause = odd.rank in blamed[name] or (odd.shift and (odd.is_sure or len(odd.ranks) == 2))
            yield _slip(evidence, name, rows, odd, certainty if is_cause else Certainty.LIKELY)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Odd:
    """The rank that slipped, of `ranks` that met at `start`; and how often it and the others meet after it. is_sure:
    more than one call says so."""

    rank: int
    ranks: tuple[int, ...]
    start: int
    later: int
    shift: int = 0
    steps: int = 0
    is_sure: bool = True


def _slip(evidence: Evidence, name: str, rows: Picked, odd: _Odd, explains: Certainty) -> Desync:
    shown = [odd.rank, *sorted(set(odd.ranks) - {odd.rank})]
    calls = {rank: _call(evidence, rank, rows[rank], odd.start) for rank in shown}
    return Desync(
        certainty=Certainty.CERTAIN if odd.shift and odd.is_sure else Certainty.LIKELY,
        began_wall_ns=evidence.wall_ns(odd.rank, calls[odd.rank].time_created_ns),
        ranks=(odd.rank,),
        group=evidence.group(name),
        sequence=odd.start,
        calls=tuple(Call(rank=rank, collective=calls[rank]) for rank in shown),
        shift=odd.shift,
        steps=odd.steps,
        later=odd.later,
        explains=explains,
    )


def _out_of_step(evidence: Evidence, rows: Picked, columns: Mapping[int, list[Ints]]) -> _Odd | None:
    """Of one rank against the others; where two slipped, or there is no majority, nothing is said."""
    start = _last_agreement(evidence, rows, columns)
    if start is None:
        return None
    keys = {rank: _from(evidence, rank, rows[rank], columns[rank], start) for rank in rows}
    at = {rank: found[start] for rank, found in keys.items() if start in found}
    usual, votes = Counter(at.values()).most_common(1)[0]
    odd = sorted(rank for rank, key in at.items() if key != usual)
    if not odd or (votes <= len(odd) and len(at) > 2):
        return None
    right = next(rank for rank, key in at.items() if key == usual)
    steps = _steps_apart(keys[odd[0]], keys[right], start)
    shift = 0 if steps else _shift(keys[odd[0]], keys[right], start)
    if len(at) == 2 and shift:
        skipped, made = (odd[0], right) if shift > 0 else (right, odd[0])
        line = at[made].line
        is_new = line != NOWHERE and not _have_met(evidence, rows, columns, line, start)
        odd, right, shift = ([made], skipped, -abs(shift)) if is_new else ([skipped], made, abs(shift))
    if len(odd) > 1 or not (shift or steps):
        return None
    later = sum(seq > start and seq in keys[right] for seq in keys[odd[0]])
    is_sure = len(at) > 2 and any(key.step > 0 for key in keys[right].values())
    return _Odd(rank=odd[0], ranks=tuple(at), start=start, later=later, shift=shift, steps=steps, is_sure=is_sure)


def _at_another_line(evidence: Evidence, rows: Picked, columns: Mapping[int, list[Ints]]) -> _Odd | None:
    """Whatever the steps are, and where the ranks still agree at other lines."""
    seqs, places = met(evidence, rows)
    ranks = tuple(rows)
    if not len(seqs):
        return None
    at = [columns[rank][_LINE][np.searchsorted(rows[rank], places[rank])] for rank in ranks]
    found = first_change(np.array(at))
    if found is None:
        return None
    number, column = found
    return _Odd(rank=ranks[number], ranks=ranks, start=int(seqs[column]), later=len(seqs) - column - 1)


def _just_before(
    evidence: Evidence, rows: Picked, columns: Mapping[int, list[Ints]], broken: int | None, blamed: Collection[int]
) -> _Odd | None:
    """Where the last call before `broken`, at which calls do not match, matched although one rank was at another line
    than the others, who were at a line that all of them had met at each time before. Of more than two ranks it is one
    of the `blamed`, whose calls do not match there."""
    start = _last_agreement(evidence, rows, columns)
    if start is None or broken is None or start != broken - 1:
        return None
    keys = {rank: _from(evidence, rank, rows[rank], columns[rank], start) for rank in rows}
    at = {rank: found[start] for rank, found in keys.items() if start in found}
    found = []
    for odd in at:
        others = [key for rank, key in at.items() if rank != odd]
        right = next(rank for rank in at if rank != odd)
        line, usual = at[odd].line, at[right].line
        is_odd = line != usual and NOWHERE not in (line, usual) and all(key == at[right] for key in others)
        if is_odd and _always_met(evidence, rows, columns, usual, start):
            left_out, made = keys[right].get(start + 1) == at[odd], keys[odd].get(start + 1) == at[right]
            shift = int(left_out) - int(made)
            later = sum(seq > start and seq in keys[right] for seq in keys[odd])
            found.append(_Odd(rank=odd, ranks=tuple(at), start=start, later=later, shift=shift, is_sure=False))
    if len(found) == 2:  # of two ranks the one that left a call out
        found = [odd for odd in found if odd.shift > 0]
    if len(at) > 2:
        found = [odd for odd in found if odd.rank in blamed]
    return found[0] if len(found) == 1 else None


def _have_met(evidence: Evidence, rows: Picked, columns: Mapping[int, list[Ints]], line: int, before: int) -> bool:
    """Whether all ranks were at the line once, before that sequence number."""
    seqs, places = met(evidence, rows)
    at = np.array([columns[rank][_LINE][np.searchsorted(rows[rank], places[rank])] for rank in rows])
    return bool((at == line)[:, seqs < before].all(axis=0).any())


def _always_met(evidence: Evidence, rows: Picked, columns: Mapping[int, list[Ints]], line: int, before: int) -> bool:
    """Whether all ranks were at the line each time that one was, and were so once, before that sequence number."""
    seqs, places = met(evidence, rows)
    at = np.array([columns[rank][_LINE][np.searchsorted(rows[rank], places[rank])] for rank in rows])
    there = (at == line)[:, seqs < before]
    return bool(there.any()) and bool((there.all(axis=0) == there.any(axis=0)).all())


def _columns(evidence: Evidence, rows: Picked) -> dict[int, list[Ints]]:
    """By rank what makes a key: step, line, operator, reduction, root, and the tensors of operators whose tensors are
    the same on all ranks."""
    line_numbers, op_numbers = Numbers(), Numbers()
    found = {}
    for rank, picked in rows.items():
        log = evidence.columns[rank]
        tensors = np.where(is_op(log, MAY_DIFFER, picked), 0, log.tensors[picked])
        own = [lines(line_numbers, log, picked), ops(op_numbers, log, picked)]
        found[rank] = [log.step[picked], *own, log.reduce_op[picked], log.root[picked], tensors]
    return found


def _last_agreement(evidence: Evidence, rows: Picked, columns: Mapping[int, list[Ints]]) -> int | None:
    """The first sequence number after which all ranks that meet never agree again, though they did before."""
    seqs, places = met(evidence, rows)
    if len(rows) < 2 or not len(seqs):
        return None
    alike = np.ones(len(seqs), dtype=np.bool_)
    first, *others = rows
    compared = {rank: [*columns[rank], _numbers_in_step(columns[rank][_STEP])] for rank in rows}
    for rank in others:
        for mine, theirs in zip(compared[rank], compared[first], strict=True):
            at, there = np.searchsorted(rows[rank], places[rank]), np.searchsorted(rows[first], places[first])
            alike &= mine[at] == theirs[there]
    agreed = np.flatnonzero(alike)
    return int(seqs[agreed[-1] + 1]) if len(agreed) and agreed[-1] + 1 < len(seqs) else None


def _numbers_in_step(steps: Ints) -> Ints:
    """Which call of its step each is: where all come from one line, ranks that slipped look alike every few calls."""
    begins = np.flatnonzero(np.diff(steps, prepend=steps[:1] - 1))
    return np.arange(len(steps)) - np.repeat(begins, np.diff(begins, append=len(steps)))


def _from(evidence: Evidence, rank: int, rows: Ints, columns: list[Ints], start: int) -> dict[int, _Key]:
    seqs = evidence.columns[rank].seq[rows]
    kept = seqs >= start
    values = zip(*(column[kept].tolist() for column in columns), strict=True)
    keys = (_Key(step, line, tuple(passed)) for step, line, *passed in values)
    return dict(zip(seqs[kept].tolist(), keys, strict=True))


def _call(evidence: Evidence, rank: int, rows: Ints, seq: int) -> Collective:
    log = evidence.columns[rank]
    return log.collective(int(at_seqs(log, rows, np.array([seq]))[0]))


def _shift(mine: _Keys, theirs: _Keys, start: int) -> int:
    """By how many calls the rank runs ahead of the other from there on, to the end of what both have."""
    for shift in range(1, LONGEST_SHIFT + 1):
        for sign, early, late in ((1, mine, theirs), (-1, theirs, mine)):
            pairs = [(early[seq], late[seq + shift]) for seq in early if seq >= start and seq + shift in late]
            if len(pairs) >= FEWEST_AGREEING and all(a == b for a, b in pairs):
                return sign * shift
    return 0


def _steps_apart(mine: _Keys, theirs: _Keys, start: int) -> int:
    """By how many steps, from there on and always as many; 0 where it is not so, or a rank counts none."""
    both = [seq for seq in mine if seq >= start and seq in theirs]
    apart = {mine[seq].step - theirs[seq].step for seq in both}
    both_count = mine[start].step > 0 and theirs[start].step > 0 and len({mine[seq].step for seq in both}) > 1
    same_lines = all(mine[seq].line == theirs[seq].line for seq in both)
    return apart.pop() if len(apart) == 1 and both_count and same_lines else 0
