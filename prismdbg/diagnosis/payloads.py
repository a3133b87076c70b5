"""What ranks put into their reductions, by fingerprints: only zeros, or all of them the same bits.

Small tensors are left out: a flag or a count is often zero, and equal everywhere. Both are hints: a bucket of unused
parameters is zero, and what is averaged although it is equal already is equal, on purpose.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from prismdbg.diagnosis.evidence import Evidence
from prismdbg.diagnosis.verdict import Call, Certainty, Verdict
from prismdbg.diagnosis.wording import place, rank_list
from prismdbg.model import dtypes
from prismdbg.model.collective import Collective, Group, TensorMeta
from prismdbg.model.counted import counted
from prismdbg.model.mixing import of_zeros
from prismdbg.model.moment import Moment
from prismdbg.model.ops import Movement, ops_of

FEWEST_STEPS = 8
FEWEST_ELEMENTS = 256
_OPS = ops_of(Movement.ALL_REDUCE, Movement.REDUCE_SCATTER)
_SUMS = ("SUM", "AVG")


@dataclass(frozen=True, slots=True)
class _Kind:
    """Reductions that a program does again and again: of one line, of one size."""

    op: str
    line: str
    inputs: tuple[TensorMeta, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Payload(Verdict):
    """`call`: the first of them. steps: in how many it was so, up to the log's end."""

    what: str
    call: Call
    group: Group
    steps: int

    kind = "payload"

    @property
    def moment(self) -> Moment:
        return self.call.collective.moment

    @property
    def text(self) -> str:
        call = self.call.collective
        where = f"{call.name} of group {self.group.title}, {counted(self.steps, 'step')} long from {call.moment} on"
        return f"{rank_list(self.ranks)} {self.what} in {where}{place(call)}"

    @property
    def lines(self) -> tuple[str, ...]:
        return (self.call.text,)

    def details(self) -> dict[str, Any]:
        return {"what": self.what, "group": self.group.name, "steps": self.steps, "call": self.call.to_json()}


def find_payloads(evidence: Evidence) -> Iterator[Verdict]:
    """For each kind of reduction: who sent only zeros to the end; else whether all members sent the same."""
    for (name, _), by_rank in _reductions(evidence).items():
        group = evidence.group(name)
        zeros = {rank: found for rank, calls in by_rank.items() if (found := _only(calls, _is_zero))}
        if zeros:
            plural = "sends" if len(zeros) == 1 else "send"
            yield _verdict(evidence, group, zeros, f"{plural} only zeros")
        elif 1 < group.size == len(by_rank) and (same := _same(by_rank)):
            yield _verdict(evidence, group, same, "send identical bits")


def _reductions(evidence: Evidence) -> dict[tuple[str, _Kind], dict[int, list[Collective]]]:
    """By group and kind, then by rank, in order."""
    found: dict[tuple[str, _Kind], dict[int, list[Collective]]] = defaultdict(dict)
    for rank, log in evidence.logs.items():
        for call in log.collectives:
            if _is_large_sum(call):
                kind = _Kind(call.op, str(call.source), call.inputs)
                found[call.group, kind].setdefault(rank, []).append(call)
    return found


def _is_large_sum(call: Collective) -> bool:
    sums = call.op in _OPS and call.reduce_op in _SUMS and call.fingerprint is not None
    return sums and not call.sent_nonfinite and sum(prod(tensor.shape) for tensor in call.inputs) >= FEWEST_ELEMENTS


def _only(calls: Sequence[Collective], holds: Callable[[Collective], bool]) -> list[Collective]:
    """The last of them, as far back as all hold; none where these are not enough steps."""
    last: list[Collective] = []
    for call in reversed(calls):
        if not holds(call):
            break
        last.append(call)
    return last[::-1] if len({call.moment.step for call in last}) >= FEWEST_STEPS else []


def _is_zero(call: Collective) -> bool:
    sizes = (prod(tensor.shape) * dtypes.ITEM_BYTES.get(tensor.dtype, 0) for tensor in call.inputs)
    return call.fingerprint == of_zeros(sizes)


def _same(by_rank: Mapping[int, Sequence[Collective]]) -> dict[int, list[Collective]]:
    """The calls that all ranks met in, where each time all sent the same, and not the same every time."""
    sent: dict[int, set[int | None]] = defaultdict(set)
    for calls in by_rank.values():
        for call in calls:
            sent[call.identity.seq].add(call.fingerprint)
    differ = len({value for values in sent.values() for value in values}) > len(sent) // 2
    alike = all(len(values) == 1 for values in sent.values())
    steps = {call.moment.step for calls in by_rank.values() for call in calls}
    enough = alike and differ and len(steps) >= FEWEST_STEPS
    return {rank: list(calls) for rank, calls in by_rank.items()} if enough else {}


def _verdict(evidence: Evidence, group: Group, calls: Mapping[int, Sequence[Collective]], what: str) -> Payload:
    first = min(calls, key=lambda rank: calls[rank][0].moment)
    call = calls[first][0]
    return Payload(
        certainty=Certainty.HINT,
        began_wall_ns=evidence.wall_ns(first, call.time_created_ns),
        ranks=tuple(sorted(calls)),
        what=what,
        call=Call(rank=first, collective=call),
        group=group,
        steps=len({each.moment.step for each in calls[first]}),
    )
