"""Two logs side by side: the first collective that differs, and how long each kind of call took. Pure.

The same rank of two runs is compared by moment: what it called, what it sent, what it received. Two ranks of one job
are compared by group and sequence number: what they called, and what both must have received alike.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

import numpy as np

from prismdbg.diagnosis.match import WRONG, match
from prismdbg.errors import CapsuleError, UsageError
from prismdbg.log.columns import NOT_ENDED, LogColumns
from prismdbg.model.collective import UNNAMED, Collective, State, TensorMeta, group_title
from prismdbg.model.meanwhile import one_by_one
from prismdbg.model.moment import Moment
from prismdbg.model.ops import Movement, ops_of

Array = np.ndarray[Any, np.dtype[Any]]
Rows = np.ndarray[Any, np.dtype[np.int64]]
# What all members of a group receive alike.
ALIKE = ops_of(Movement.ALL_REDUCE, Movement.ALL_GATHER, Movement.BROADCAST)


class Aspect(StrEnum):
    CALL = "call"
    SENT = "sent"
    RECEIVED = "received"


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorDifference:
    """Of output `number`: how many elements differ, by how much at most, and where that is. Two NaNs are the same.
    max_abs, max_rel: None where no difference is a number."""

    number: int
    meta: TensorMeta
    differing: int
    max_abs: float | None
    max_rel: float | None
    at: tuple[int, ...]
    nans: tuple[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """The first. `calls`: of either side, None where it has none there.

    received_in: the first calls from `calls` on that received other values; None if none is known, or if the calls
    themselves differ. tensors: what differs there; if empty, why_no_tensors says why. received: if the calls sent other
    values, how many calls from there on were compared by what they received; damage: why that was not possible.
    """

    aspect: Aspect
    calls: tuple[Collective | None, Collective | None]
    what: str
    received_in: tuple[Collective, Collective] | None = None
    tensors: tuple[TensorDifference, ...] = ()
    why_no_tensors: str = ""
    received: int = 0
    damage: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """Of all calls of this name in this group, within what was compared: how many, and the median of their durations in
    nanoseconds, None where none completed."""

    name: str
    group: str
    counts: tuple[int, int]
    medians_ns: tuple[int | None, int | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Begin:
    """From where on a log was compared: `moment`, None where nothing of it could be. earlier: how many collectives the
    rank issued before. is_cut: of these some are in the log, but only the end of a long log was read."""

    moment: Moment | None
    earlier: int
    is_cut: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """calls, sent, received: how many were compared, up to the first difference. `begins`: of either side."""

    difference: Difference | None
    calls: int
    sent: int
    received: int
    timings: tuple[Timing, ...]
    begins: tuple[Begin, Begin]

    @property
    def is_cut(self) -> bool:
        return any(begin.is_cut for begin in self.begins)

    @property
    def is_equal(self) -> bool | None:
        """None where it is not known: nothing was compared, or not all of what both logs have."""
        if self.difference is not None:
            return False
        return True if self.calls and not self.is_cut else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """payload: the bytes that the rank received, None where they were not kept. arrays: the same as arrays; raises
    `UsageError` if numpy has no such element type. Both raise `CapsuleError` if the payload is damaged."""

    log: LogColumns
    payload: Callable[[Collective], bytes | None]
    arrays: Callable[[Collective], tuple[Array, ...]]


def compare(a: Side, b: Side) -> Comparison:
    """The same rank where both logs are of one number, else two ranks of one job. From where on a log has every
    collective: a single one of before, which a summary keeps, is alone there because the others were left out."""
    begins = _begin(a.log), _begin(b.log)
    a, b = (replace(side, log=side.log.without_single_ones()) for side in (a, b))
    same_rank = a.log.rank == b.log.rank
    pairs, alone = _by_moment(a.log, b.log) if same_rank else _by_sequence(a.log, b.log)
    differs = _differing_calls(a.log, b.log, pairs, _same_call if same_rank else _belong_together)
    if same_rank:
        differs |= _ended_otherwise(a.log, b.log, pairs)
    sent = _both_fingerprints(a.log, b.log, pairs) if same_rank else np.zeros(len(pairs), dtype=np.bool_)
    differs_sent = sent & (a.log.fingerprint[pairs[:, 0]] != b.log.fingerprint[pairs[:, 1]])
    wrong = differs | differs_sent
    first = int(np.argmax(wrong)) if wrong.any() else len(pairs)
    compared, found = _first_received(a, b, pairs[:first], same_rank)
    if found is None and alone is not None and (first == len(pairs) or _is_before(a.log, b.log, alone, pairs[first])):
        found = _alone(a.log, b.log, alone)
    elif found is None and first < len(pairs):
        found = _of_pair(a, b, pairs[first], differs_sent=bool(differs_sent[first] and not differs[first]))
    if found is not None and found.aspect is Aspect.SENT:
        found = _with_received(found, a, b, pairs[first:][~differs[first:]])
    return Comparison(
        difference=found,
        calls=min(first + 1, len(pairs)),
        sent=int(sent[: first + 1].sum()),
        received=compared,
        timings=tuple(_timings(a.log, b.log, pairs)),
        begins=begins,
    )


def _begin(log: LogColumns) -> Begin:
    whole = log.without_single_ones()
    is_cut = log.read_from_later or log.whole_from > 0  # by bytes or, of many ranks, by rows
    if not len(whole):
        return Begin(moment=None, earlier=log.issued, is_cut=is_cut)
    return Begin(moment=whole.moment(0), earlier=int(whole.record_id[0]), is_cut=is_cut)


Alone = tuple[int, int]  # the side, 0 or 1, and its row


def _by_moment(a: LogColumns, b: LogColumns) -> tuple[Rows, Alone | None]:
    """Rows of one moment, and the first of either side that the other lacks, where both logs reach."""
    keys = [(log.step.astype(np.int64) << 32) + log.nth for log in (a, b)]
    if not len(keys[0]) or not len(keys[1]):
        return np.zeros((0, 2), dtype=np.int64), None
    _, rows_a, rows_b = np.intersect1d(keys[0], keys[1], return_indices=True)
    begin, end = max(keys[0][0], keys[1][0]), min(keys[0][-1], keys[1][-1])
    lonely = [
        (int(key[row]), side, int(row))
        for side, (key, rows) in enumerate(zip(keys, (rows_a, rows_b), strict=True))
        for row in np.setdiff1d(np.flatnonzero((key >= begin) & (key <= end)), rows)[:1]
    ]
    first = min(lonely, default=None)
    return np.stack([rows_a, rows_b], axis=1), (first[1], first[2]) if first is not None else None


def _by_sequence(a: LogColumns, b: LogColumns) -> tuple[Rows, None]:
    """Rows of one collective of a group that both are in. A rank that lacks one never came, which `why` says."""
    pairs = []
    for name in sorted((set(a.groups) & set(b.groups)) - {UNNAMED}):
        if {a.rank, b.rank} <= set(a.groups[name].ranks):
            rows = [np.flatnonzero(np.isin(log.group, _numbers(log, name)) & ~log.is_p2p) for log in (a, b)]
            _, at_a, at_b = np.intersect1d(a.seq[rows[0]], b.seq[rows[1]], return_indices=True)
            pairs.append(np.stack([rows[0][at_a], rows[1][at_b]], axis=1))
    joined = np.concatenate(pairs) if pairs else np.zeros((0, 2), dtype=np.int64)
    return joined[np.argsort(joined[:, 0], kind="stable")], None


def _numbers(log: LogColumns, text: str) -> list[int]:
    return [number for number, known in log.texts.items() if known == text]


def _differing_calls(
    a: LogColumns, b: LogColumns, pairs: Rows, agree: Callable[[Collective, Collective], bool]
) -> Array:
    """Another operator, group, sequence number, or arguments that do not agree. Each combination is decoded once."""
    rows_a, rows_b = pairs[:, 0], pairs[:, 1]
    differs = np.zeros(len(pairs), dtype=np.bool_)
    for name in ("op", "group"):
        differs |= _common_numbers(a, name)[rows_a] != _common_numbers(b, name)[rows_b]
    differs |= (a.seq[rows_a] != b.seq[rows_b]) & ~a.is_p2p[rows_a]
    if not len(pairs):
        return differs
    kinds = np.stack(
        [
            getattr(log, name)[rows]
            for name in ("op", "tensors", "root", "tag", "reduce_op")
            for log, rows in ((a, rows_a), (b, rows_b))
        ],
        axis=1,
    )
    _, firsts, which = np.unique(kinds, axis=0, return_index=True, return_inverse=True)
    wrong = [not agree(a.collective(int(rows_a[row])), b.collective(int(rows_b[row]))) for row in firsts]
    return differs | np.array(wrong, dtype=np.bool_)[which.reshape(-1)]


def _common_numbers(log: LogColumns, name: str) -> Array:
    """The texts' own hashes: numbers of texts are each log's own."""
    texts = log.texts
    column = getattr(log, name)
    known, which = np.unique(column, return_inverse=True)
    return np.array([hash(texts.get(int(number), "")) for number in known], dtype=np.int64)[which.reshape(-1)]


def _belong_together(a: Collective, b: Collective) -> bool:
    """Two members' sides of one collective; how far it got is not compared."""
    return match(a, replace(b, state=a.state)).state not in WRONG


def _same_call(a: Collective, b: Collective) -> bool:
    return _arguments(a) == _arguments(b)


def _arguments(call: Collective) -> tuple[object, ...]:
    tensors = [(meta.shape, meta.dtype) for meta in (*call.inputs, *call.outputs)]
    return tensors, call.root, call.tag, call.reduce_op


def _ended_otherwise(a: LogColumns, b: LogColumns, pairs: Rows) -> Array:
    """One failed, the other did not. Of a call that has not ended nothing is known."""
    rows_a, rows_b = pairs[:, 0], pairs[:, 1]
    both = (a.ended_ns[rows_a] != NOT_ENDED) & (b.ended_ns[rows_b] != NOT_ENDED)
    differs: Array = both & (a.failed[rows_a] != b.failed[rows_b])
    return differs


def _both_fingerprints(a: LogColumns, b: LogColumns, pairs: Rows) -> Array:
    both: Array = a.has_fingerprint[pairs[:, 0]] & b.has_fingerprint[pairs[:, 1]]
    return both


def _first_received(a: Side, b: Side, pairs: Rows, same_rank: bool) -> tuple[int, Difference | None]:
    """How many were compared, and the first that differs."""
    kept = a.log.has_payload[pairs[:, 0]] & b.log.has_payload[pairs[:, 1]]
    kept &= ~a.log.synthesized[pairs[:, 0]] & ~b.log.synthesized[pairs[:, 1]]
    compared, kept_pairs = 0, pairs[kept]
    for at in one_by_one(range(len(kept_pairs)), "comparing what was received"):
        row_a, row_b = kept_pairs[at]
        call_a, call_b = a.log.collective(int(row_a)), b.log.collective(int(row_b))
        if not same_rank and call_a.op not in ALIKE:
            continue
        data_a, data_b = a.payload(call_a), b.payload(call_b)
        if data_a is None or data_b is None:
            continue
        compared += 1
        if data_a != data_b:
            calls = call_a, call_b
            tensors, why_none = _differing_tensors(a, b, *calls)
            return compared, Difference(
                aspect=Aspect.RECEIVED,
                calls=calls,
                what="received other values",
                received_in=calls,
                tensors=tensors,
                why_no_tensors=why_none,
            )
    return compared, None


def _with_received(found: Difference, a: Side, b: Side, pairs: Rows) -> Difference:
    """What was sent is in no log; what was received because of it often is. `pairs`: from the difference on."""
    try:
        compared, received = _first_received(a, b, pairs, same_rank=True)
    except CapsuleError as error:  # what was sent differs all the same
        return replace(found, damage=error.bare)
    if received is None:
        return replace(found, received=compared)
    return replace(
        found,
        received=compared,
        received_in=received.received_in,
        tensors=received.tensors,
        why_no_tensors=received.why_no_tensors,
    )


def _differing_tensors(
    a: Side, b: Side, call_a: Collective, call_b: Collective
) -> tuple[tuple[TensorDifference, ...], str]:
    """Of two payloads that differ; if none is found, why."""
    try:
        arrays = a.arrays(call_a), b.arrays(call_b)
    except UsageError as error:
        return (), f"which elements differ is unknown: {error.bare}"
    found = tuple(_tensors(call_a, *arrays))
    return found, "" if found else "all elements are equal as numbers: only signs of zeros or bits of NaNs differ"


def _tensors(call: Collective, first: tuple[Array, ...], second: tuple[Array, ...]) -> Iterator[TensorDifference]:
    for number, (meta, a, b) in enumerate(zip(call.outputs, first, second, strict=True)):
        if (found := _tensor(number, meta, a, b)) is not None:
            yield found


def _tensor(number: int, meta: TensorMeta, a: Array, b: Array) -> TensorDifference | None:
    nan_a, nan_b = (np.isnan(x) if x.dtype.kind in "fc" else np.zeros(x.shape, dtype=np.bool_) for x in (a, b))
    differs = (a != b) & ~(nan_a & nan_b)
    if not differs.any():
        return None
    wide = np.complex128 if a.dtype.kind == "c" else np.float64
    with np.errstate(all="ignore"):
        away = np.where(differs, np.abs(a.astype(wide) - b.astype(wide)), 0.0)
        ratio = away / np.maximum(np.abs(a.astype(wide)), np.abs(b.astype(wide)))
    numbers = np.isfinite(away)
    place = int(np.argmax(np.where(numbers, away, np.inf))) if not numbers.all() else int(np.argmax(away))
    ratios = ratio[np.isfinite(ratio)]
    return TensorDifference(
        number=number,
        meta=meta,
        differing=int(differs.sum()),
        max_abs=float(away[numbers & differs].max()) if (numbers & differs).any() else None,
        max_rel=float(ratios.max()) if ratios.size and (numbers & differs).any() else None,
        at=tuple(int(each) for each in np.unravel_index(place, a.shape)),
        nans=(int(nan_a.sum()), int(nan_b.sum())),
    )


def _is_before(a: LogColumns, b: LogColumns, alone: Alone, pair: Array) -> bool:
    side, row = alone
    return row < int(pair[side])


def _alone(a: LogColumns, b: LogColumns, alone: Alone) -> Difference:
    side, row = alone
    call = (a, b)[side].collective(row)
    calls = (call, None) if side == 0 else (None, call)
    return Difference(aspect=Aspect.CALL, calls=calls, what=f"only the {('first', 'second')[side]} has this call")


def _of_pair(a: Side, b: Side, pair: Array, *, differs_sent: bool) -> Difference:
    calls = a.log.collective(int(pair[0])), b.log.collective(int(pair[1]))
    if differs_sent:
        return Difference(aspect=Aspect.SENT, calls=calls, what="sent other values")
    return Difference(
        aspect=Aspect.CALL, calls=calls, what=", ".join(_differences(*calls, _groups(a, b, calls))) or "another call"
    )


def _groups(a: Side, b: Side, calls: tuple[Collective, Collective]) -> tuple[str, str]:
    """Their titles; their names where only these differ."""
    names = calls[0].group, calls[1].group
    titles = group_title(a.log.groups, names[0]), group_title(b.log.groups, names[1])
    return titles if titles[0] != titles[1] else names


def _differences(a: Collective, b: Collective, groups: tuple[str, str]) -> Iterator[str]:
    for name, first, second in (
        ("operator", a.name, b.name),
        ("group", *groups),
        ("sequence number", str(a.identity.seq), str(b.identity.seq)),
        ("input", _texts(a.inputs), _texts(b.inputs)),
        ("output", _texts(a.outputs), _texts(b.outputs)),
        ("peer" if a.is_p2p else "root", _number(a.root), _number(b.root)),
        ("tag", str(a.tag), str(b.tag)),
        ("reduction", a.reduce_op or "none", b.reduce_op or "none"),
        ("end", *_ends(a, b)),
    ):
        if first != second:
            yield f"{name} {first} and {second}"


def _number(root: int) -> str:
    return "none" if root < 0 else str(root)


def _ends(a: Collective, b: Collective) -> tuple[str, str]:
    """Of a call that has not ended nothing is known."""
    return ("", "") if State.SCHEDULED in (a.state, b.state) else (a.state, b.state)


def _texts(tensors: tuple[TensorMeta, ...]) -> str:
    return ", ".join(map(str, tensors[:4])) or "none"


def _timings(a: LogColumns, b: LogColumns, pairs: Rows) -> Iterator[Timing]:
    """Of what was compared, most calls first."""
    kinds = [_kinds(log, rows) for log, rows in ((a, pairs[:, 0]), (b, pairs[:, 1]))]
    names = sorted(kinds[0].keys() | kinds[1].keys(), key=lambda kind: -len(kinds[0].get(kind, ())))
    for name, group in names:
        of_kind = [each.get((name, group), np.zeros(0, dtype=np.int64)) for each in kinds]
        medians = tuple(_median_ns(log, rows) for log, rows in zip((a, b), of_kind, strict=True))
        yield Timing(
            name=name, group=group, counts=(len(of_kind[0]), len(of_kind[1])), medians_ns=(medians[0], medians[1])
        )


def _kinds(log: LogColumns, rows: Rows) -> dict[tuple[str, str], Rows]:
    both = np.stack([log.op[rows], log.group[rows]], axis=1)
    found: dict[tuple[str, str], Rows] = {}
    for op, group in np.unique(both, axis=0):
        of_kind = rows[(both[:, 0] == op) & (both[:, 1] == group)]
        title = group_title(log.groups, log.texts.get(int(group), ""))
        found[log.collective(int(of_kind[0])).name, title] = of_kind
    return found


def _median_ns(log: LogColumns, rows: Rows) -> int | None:
    ended = rows[log.ended_ns[rows] != NOT_ENDED]
    return int(np.median(log.ended_ns[ended] - log.begun_ns[ended])) if len(ended) else None
