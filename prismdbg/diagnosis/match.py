"""Do two ranks' calls belong together? Named as torch's Flight Recorder names it (its `MatchState`).

Where Flight Recorder compares shapes, numbers of elements are compared: that is what has to agree.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from math import prod

from prismdbg.model import dtypes
from prismdbg.model.collective import Collective, TensorMeta
from prismdbg.model.ops import Movement, ops_of

# What a rank passes in, or gets out, that may differ from rank to rank.
PER_PEER = ops_of(Movement.ALL_TO_ALL)
_FREE_INPUTS = ops_of(Movement.SCATTER) | PER_PEER | {"allgather_"}
_FREE_OUTPUTS = ops_of(Movement.GATHER) | PER_PEER | {"reduce_scatter_"}

MAY_DIFFER = _FREE_INPUTS | _FREE_OUTPUTS
_UNKNOWN_TYPE = "unknown"  # of tensors in another tool's files that do not say theirs


class MatchState(StrEnum):
    FULLY_MATCHED = "FULLY_MATCHED"
    COLLECTIVE_TYPE_MISMATCH = "COLLECTIVE_TYPE_MISMATCH"
    SIZE_OR_SYNTAX_MISMATCH = "SIZE_OR_SYNTAX_MISMATCH"
    COLLECTIVE_STATE_MISMATCH = "COLLECTIVE_STATE_MISMATCH"
    COLLECTIVE_DTYPE_MISMATCH = "COLLECTIVE_DTYPE_MISMATCH"
    UNDECIDED = "UNDECIDED"


# The program is wrong, whatever happened to the job.
WRONG = frozenset(
    {
        MatchState.COLLECTIVE_TYPE_MISMATCH,
        MatchState.SIZE_OR_SYNTAX_MISMATCH,
        MatchState.COLLECTIVE_DTYPE_MISMATCH,
    }
)


@dataclass(frozen=True, slots=True)
class Signature:
    """All that must be the same on every rank. None: may differ."""

    op: str
    input_sizes: tuple[int, ...] | None
    output_sizes: tuple[int, ...] | None
    reduce_op: str
    root: int
    element_types: frozenset[str]


@dataclass(frozen=True, slots=True)
class Match:
    """`difference` says what the second call has in place of what the first has."""

    state: MatchState
    difference: str = ""


def signature(call: Collective) -> Signature:
    return Signature(
        op=call.op,
        input_sizes=None if call.op in _FREE_INPUTS else _sizes(call.inputs),
        output_sizes=None if call.op in _FREE_OUTPUTS else _sizes(call.outputs),
        reduce_op=call.reduce_op,
        root=call.root,
        element_types=frozenset(tensor.dtype for tensor in (*call.inputs, *call.outputs)),
    )


def signatures(calls: Mapping[int, Collective]) -> dict[int, Signature]:
    """By rank, to be compared with each other: without the element types, where a call's are not all known."""
    found = {rank: signature(call) for rank, call in calls.items()}
    if any(_UNKNOWN_TYPE in each.element_types for each in found.values()):
        return {rank: replace(each, element_types=frozenset()) for rank, each in found.items()}
    return found


def match(expected: Collective, found: Collective) -> Match:
    """Two ranks' sides of one collective."""
    a, b = signature(expected), signature(found)
    if a.op != b.op:
        return Match(MatchState.COLLECTIVE_TYPE_MISMATCH, f"{found.name} instead of {expected.name}")
    for what, first, second in (
        ("input elements", a.input_sizes, b.input_sizes),
        ("output elements", a.output_sizes, b.output_sizes),
        ("reduce op", a.reduce_op, b.reduce_op),
        ("root", a.root, b.root),
    ):
        if first != second:
            return Match(MatchState.SIZE_OR_SYNTAX_MISMATCH, f"{what} {_said(second)} instead of {_said(first)}")
    if a.element_types != b.element_types and _UNKNOWN_TYPE not in a.element_types | b.element_types:
        return Match(
            MatchState.COLLECTIVE_DTYPE_MISMATCH,
            f"{', '.join(sorted(b.element_types))} instead of {', '.join(sorted(a.element_types))}",
        )
    if expected.state is not found.state:
        return Match(MatchState.COLLECTIVE_STATE_MISMATCH, f"{found.state} instead of {expected.state}")
    return Match(MatchState.UNDECIDED if expected.op in PER_PEER else MatchState.FULLY_MATCHED)


def match_message(send: Collective, receive: Collective) -> Match:
    """The two ends of a message: as many bytes must be received as are sent, or elements, where bytes are not known."""
    if any(tensor.dtype == _UNKNOWN_TYPE for tensor in (*send.inputs, *receive.outputs)):
        elements, room = sum(_sizes(send.inputs)), sum(_sizes(receive.outputs))
        if elements != room:
            return Match(MatchState.SIZE_OR_SYNTAX_MISMATCH, f"{room} elements expected, {elements} sent")
        return Match(MatchState.FULLY_MATCHED)
    sent, wanted = _size_bytes(send.inputs), _size_bytes(receive.outputs)
    if sent != wanted:
        return Match(MatchState.SIZE_OR_SYNTAX_MISMATCH, f"{wanted} bytes expected, {sent} sent")
    return Match(MatchState.FULLY_MATCHED)


def _sizes(tensors: tuple[TensorMeta, ...]) -> tuple[int, ...]:
    return tuple(prod(tensor.shape) for tensor in tensors)


def _size_bytes(tensors: tuple[TensorMeta, ...]) -> int:
    return sum(prod(tensor.shape) * dtypes.ITEM_BYTES.get(tensor.dtype, 1) for tensor in tensors)


def _said(value: tuple[int, ...] | str | int | None) -> str:
    if isinstance(value, tuple):
        return " + ".join(map(str, value)) or "none"
    return str(value)
