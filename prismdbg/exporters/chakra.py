"""The logs of a job as Chakra execution traces, one file a rank, for ASTRA-sim and other readers of that format.

A rank is a chain of computations, one between two calls, and a node for each call. A call that holds its issuer is
before the next computation. One that does not is before the first computation that began after the rank had waited for
it, or, where no wait was recorded, after it had ended.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from typing import IO, Any

from prismdbg.capsule.log.events import RankLog
from prismdbg.importers.chakra_schema import (
    COLLECTIVE,
    COLLECTIVES,
    COMP,
    RECV,
    SEND,
    SUFFIX,
    VERSION,
    messages,
    prefixed,
)
from prismdbg.model.collective import Collective, Group, TensorMeta, runs_of
from prismdbg.model.dtypes import ITEM_BYTES
from prismdbg.model.meanwhile import one_by_one
from prismdbg.model.ops import OPS, Movement

GROUPS_FILE = "comm_groups.json"
NAME = "chakra"
_NS_PER_US = 1000
TYPES = {
    Movement.ALL_REDUCE: "ALL_REDUCE",
    Movement.REDUCE: "REDUCE",
    Movement.REDUCE_SCATTER: "REDUCE_SCATTER",
    Movement.ALL_GATHER: "ALL_GATHER",
    Movement.GATHER: "GATHER",
    Movement.BROADCAST: "BROADCAST",
    Movement.SCATTER: "SCATTER",
    Movement.ALL_TO_ALL: "ALL_TO_ALL",
    Movement.BARRIER: "BARRIER",
}
_POINT_TO_POINT = {Movement.SEND: SEND, Movement.RECEIVE: RECV}


@dataclass(slots=True, kw_only=True)
class Written:
    """As `exporters/flight_recorder.py` counts. on_device: calls that are issued and left: what the rank computed
    before the next one is not known."""

    ranks: list[int] = field(default_factory=list)
    calls: int = 0
    earlier: int = 0
    on_device: int = 0
    left_out: Counter[str] = field(default_factory=Counter)


def write_traces(logs: Mapping[int, RankLog], folder: Path, *, last: int) -> Written:
    """`chakra.RANK.et` for each rank, with its `last` calls at most, and `comm_groups.json` with the members of each
    group, in `folder`, which exists."""
    written = Written()
    numbers = _group_numbers(logs)
    for rank, log in one_by_one(sorted(logs.items()), "writing the traces of ranks"):
        with (folder / f"{NAME}.{rank}{SUFFIX}").open("wb") as file:
            groups = {name: group for name, group in log.groups.items() if group.ranks}
            own = {name: (numbers[name, group.ranks], group) for name, group in groups.items()}
            _write_rank(file, log, last, own, written)
        written.ranks.append(rank)
    listed = {str(number): list(ranks) for (_, ranks), number in numbers.items()}
    (folder / GROUPS_FILE).write_text(json.dumps(listed, indent=1) + "\n", encoding="utf-8")
    return written


_Numbers = Mapping[str, tuple[int, Group]]


def _group_numbers(logs: Mapping[int, RankLog]) -> dict[tuple[str, tuple[int, ...]], int]:
    """By name and members, from 1: a reader may take a group's name for a number. A name may be several groups."""
    found = {(name, group.ranks) for log in logs.values() for name, group in log.groups.items() if group.ranks}
    return {each: number for number, each in enumerate(sorted(found), start=1)}


def _write_rank(file: IO[bytes], log: RankLog, last: int, numbers: _Numbers, written: Written) -> None:
    metadata = messages().metadata(version=VERSION)
    metadata.attr.add(name="producer", string_val="prismdbg")
    metadata.attr.add(name="rank", int64_val=log.rank)
    file.write(prefixed(metadata))
    first = max(len(log.collectives) - last, 0)
    written.earlier += first
    calls = []
    for call in log.collectives[first:]:
        if why := _untold(call, numbers):
            written.left_out[why] += 1
        else:
            calls.append(call)
    for node in _nodes(log, calls, numbers):
        file.write(prefixed(node))
    written.calls += len(calls)
    written.on_device += sum(call.is_on_device for call in calls)


def _untold(call: Collective, numbers: _Numbers) -> str:
    """Why a trace has no node for it; empty where it has."""
    if call.op not in OPS:
        return f"unknown operator {call.op}"
    if call.group not in numbers:
        return "the members of the group are not known"
    if call.time_completed_ns is None or call.failure is not None:
        return "it did not complete"
    if call.is_p2p and _peer(call, numbers[call.group][1]) is None:
        return "a message to or from an unknown rank"
    return ""


def _peer(call: Collective, group: Group) -> int | None:
    place = call.source_rank if OPS[call.op].is_from_any else call.root
    return group.ranks[place] if 0 <= place < group.size else None


def _nodes(log: RankLog, calls: list[Collective], numbers: _Numbers) -> Iterator[Any]:
    """Computation n is node 2n, the call after it 2n + 1."""
    begins = [_goes_on_ns(call) for call in calls]  # of the computation after each
    for number in range(1, len(begins)):
        begins[number] = max(begins[number], begins[number - 1])
    before: dict[int, list[int]] = {}
    for number, call in enumerate(calls):
        after = bisect_left(begins, _needed_ns(call), lo=number)
        before.setdefault(after + 1, []).append(2 * number + 1)
    for number, call in enumerate(calls):
        begun_ns = begins[number - 1] if number else call.time_created_ns
        computation = messages().node(
            id=2 * number,
            name=f"before {call.moment}",
            type=COMP,
            data_deps=[*([2 * number - 2] if number else []), *before.get(number, [])],
            start_time_micros=_micros(begun_ns + log.wall_offset_ns),
            duration_micros=_micros(call.time_created_ns - begun_ns),
        )
        computation.attr.add(name="is_cpu_op", bool_val=True)
        yield computation
        yield _call(log, 2 * number + 1, call, numbers)


def _goes_on_ns(call: Collective) -> int:
    ended_ns = call.time_completed_ns or call.time_created_ns
    goes_on_at_once = call.is_async or call.is_p2p or call.is_on_device
    return call.time_created_ns if goes_on_at_once else max(ended_ns, call.time_created_ns)


def _needed_ns(call: Collective) -> int:
    """From when on computations rest on it."""
    ended_ns = call.time_completed_ns or call.time_created_ns
    return ended_ns if call.time_waited_ns is None else max(call.time_waited_ns, call.time_created_ns)


def _call(log: RankLog, number: int, call: Collective, numbers: _Numbers) -> Any:
    group_number, group = numbers[call.group]
    spec = OPS[call.op]
    node = messages().node(
        id=number,
        name=f"{call.name} {call.moment}",
        type=_POINT_TO_POINT.get(spec.movement, COLLECTIVE),
        data_deps=[number - 1],
        start_time_micros=_micros(call.time_created_ns + log.wall_offset_ns),
        duration_micros=_micros(call.duration_ns or 0),
    )
    _describe(node.inputs, call.inputs)
    _describe(node.outputs, call.outputs)
    node.attr.add(name="is_cpu_op", bool_val=False)
    node.attr.add(name="comm_size", int64_val=_size_bytes(call.inputs or call.outputs))
    node.attr.add(name="pg_name", string_val=str(group_number))
    node.attr.add(name="pg_desc", string_val=group.title)
    if call.is_p2p:
        peer = _peer(call, group) or 0
        source, target = (log.rank, peer) if node.type == SEND else (peer, log.rank)
        for name, value in (("comm_src", source), ("comm_dst", target), ("comm_tag", call.tag)):
            node.attr.add(name=name, int32_val=value)
    else:
        node.attr.add(name="comm_type", int64_val=COLLECTIVES.index(TYPES[spec.movement]))
        node.attr.add(name="seq", int64_val=call.identity.seq)
        if call.root >= 0:
            node.attr.add(name="root", int64_val=call.root)
    node.attr.add(name="moment", string_val=str(call.moment))
    node.attr.add(name="op", string_val=call.op)
    node.attr.add(name="is_async", bool_val=call.is_async)
    if call.place:
        node.attr.add(name="source", string_val=call.place)
    return node


def _describe(info: Any, tensors: tuple[TensorMeta, ...]) -> None:
    """As PyTorch's execution traces write them."""
    info.shapes = json.dumps([list(each.shape) for each in tensors])
    info.types = json.dumps([f"Tensor({each.dtype})" for each in tensors])


def _micros(time_ns: int) -> int:
    return max(time_ns, 0) // _NS_PER_US


def _size_bytes(tensors: tuple[TensorMeta, ...]) -> int:
    return sum(prod(each.shape) * ITEM_BYTES.get(each.dtype, 0) * count for each, count in runs_of(tensors))
