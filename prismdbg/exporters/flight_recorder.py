"""The logs of a job as dumps of PyTorch's Flight Recorder, which torch's own analyser (`torchfrtrace`) reads.

The format is that of `c10d/FlightRecorder.hpp` (dump version 2.10). Pickles are written, never read.

The analyser expects all members of a group at each call, and takes a message and a collective of one number for one
coalesced call. So messages are written as calls of a group of their own: one for each sender, receiver and tag.
"""

from __future__ import annotations

import json
import pickle
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from prismdbg.capsule.log.events import RankLog
from prismdbg.model.collective import Collective, Group, Identity, State, TensorMeta
from prismdbg.model.meanwhile import one_by_one
from prismdbg.model.ops import OPS, Form, Movement, check_complete, ops_of

VERSION = "2.10"
_FILE = "nccl_trace_rank_"  # as torch names them
_PROTOCOL = 2
# Those that torch's analyser knows.
_BACKENDS = frozenset({"nccl", "ncclx", "xccl", "gloo", "rccl", "rcclx", "mccl", "hccl"})

# torch's profiling titles, without the backend.
_TITLES = {
    "allreduce_": "all_reduce",
    "allreduce_coalesced_": "allreduce_coalesced",
    "allgather_": "all_gather",
    "_allgather_base_": "_all_gather_base",
    "allgather_coalesced_": "all_gather_v",
    "allgather_into_tensor_coalesced_": "all_gather_into_tensor_coalesced",
    "reduce_scatter_": "reduce_scatter",
    "_reduce_scatter_base_": "_reduce_scatter_base",
    "reduce_scatter_tensor_coalesced_": "reduce_scatter_tensor_coalesced",
    "broadcast_": "broadcast",
    "reduce_": "reduce",
    "gather_": "gather",
    "gather_into_tensor_": "gather",
    "scatter_": "scatter",
    "alltoall_": "all_to_all",
    "alltoall_base_": "all_to_all",
    "send": "send",
    "recv_": "recv",
    "recv_any_source_": "recv",
    "barrier": "barrier",
    "monitored_barrier_": "barrier",
}
check_complete(_TITLES, "exporters/flight_recorder.py")
# Of lists, one tensor for each member, a dump of NCCL's has the one tensor that they are parts of.
_JOINED_OUTPUTS = ops_of(Movement.ALL_GATHER, form=Form.LISTED)
_JOINED_INPUTS = ops_of(Movement.REDUCE_SCATTER, form=Form.LISTED)
# Of these the analyser compares both sizes on each rank, and fails where one is missing.
_HAVE_BOTH_SIZES = ops_of(Movement.ALL_REDUCE, Movement.ALL_GATHER, Movement.REDUCE_SCATTER, Movement.ALL_TO_ALL)
# Element types as c10::toString has them, where that is not the name with a capital letter.
_DTYPES = {
    "uint8": "Byte",
    "int8": "Char",
    "int16": "Short",
    "int32": "Int",
    "int64": "Long",
    "float16": "Half",
    "float32": "Float",
    "float64": "Double",
    "bfloat16": "BFloat16",
    "complex32": "ComplexHalf",
    "complex64": "ComplexFloat",
    "complex128": "ComplexDouble",
}


@dataclass(slots=True, kw_only=True)
class Written:
    """`calls`: in all files. `earlier`: calls that were not written, for `last`. `left_out`: calls that a dump has no
    words for, by why."""

    ranks: list[int] = field(default_factory=list)
    calls: int = 0
    earlier: int = 0
    left_out: Counter[str] = field(default_factory=Counter)


def write_dumps(logs: Mapping[int, RankLog], folder: Path, *, last: int, as_json: bool = False) -> Written:
    """A file for each rank in `folder`, which exists, with the rank's `last` calls at most. Torch's analyser reads
    pickles; JSON is for other readers."""
    written = Written()
    is_cut = any(len(log.collectives) > last or log.dropped for log in logs.values())
    sizeless = frozenset(call.identity for log in logs.values() for call in _last(log, last) if _lacks_sizes(call))
    for rank, log in one_by_one(sorted(logs.items()), "writing the dumps of ranks"):
        made = _dump(log, last, written, sizeless, with_messages=not is_cut)
        name = f"{_FILE}{rank}"
        if as_json:
            (folder / f"{name}.json").write_text(json.dumps(made), encoding="utf-8")
        else:
            (folder / name).write_bytes(pickle.dumps(made, protocol=_PROTOCOL))
        written.ranks.append(rank)
    return written


def _last(log: RankLog, last: int) -> Iterator[Collective]:
    rows = range(max(len(log.collectives) - last, 0), len(log.collectives))
    return (log.collectives[row] for row in rows)


def _lacks_sizes(call: Collective) -> bool:
    """As in traces of torch's profiler, which do not have the outputs of lists."""
    return call.op in _HAVE_BOTH_SIZES and not (call.inputs and call.outputs)


def _dump(
    log: RankLog, last: int, written: Written, sizeless: frozenset[Identity], *, with_messages: bool
) -> dict[str, Any]:
    """Of one rank; `written` counts. sizeless: calls of which some rank's sizes are not known."""
    groups = {name: group for name, group in log.groups.items() if group.ranks}
    entries: list[dict[str, Any]] = []
    for call in _last(log, last):
        if why := _untold(call, log, sizeless, with_messages=with_messages):
            written.left_out[why] += 1
            continue
        group = _pair(log, call) if call.is_p2p else groups[call.group]
        groups.setdefault(group.name, group)
        entries.append(_entry(log, call, group) | {"op_id": len(entries) + 1})
    written.earlier += max(len(log.collectives) - last, 0)
    written.calls += len(entries)
    return {
        "version": VERSION,
        "pg_config": {
            name: {"name": name, "desc": _description(group), "ranks": str(list(group.ranks))}
            for name, group in groups.items()
        },
        "pg_status": {},
        "entries": entries,
    }


def _untold(call: Collective, log: RankLog, sizeless: frozenset[Identity], *, with_messages: bool) -> str:
    """Why a dump has no words for it; empty where it has."""
    if call.op not in OPS:
        return f"torch's analyser does not know the operator {call.op}"
    group = log.groups.get(call.group)
    if group is None or log.rank not in group.ranks:
        return "the members of the group are not known"
    if call.identity in sizeless:
        return "torch's analyser needs the sizes of what is sent and received, which are not known"
    if not call.is_p2p:
        return ""
    if not with_messages:
        return "messages cannot be paired, because the first ones are missing"
    if OPS[call.op].is_from_any:
        return "torch's analyser cannot pair a receive from any rank"
    return "" if 0 <= call.root < group.size and group.ranks[call.root] != log.rank else "a message to no other rank"


def _pair(log: RankLog, call: Collective) -> Group:
    """The group in which a message is the call of its number; its members are in order."""
    group = log.groups[call.group]
    ends = (log.rank, group.ranks[call.root])
    sender, receiver = ends if _TITLES[call.op] == "send" else reversed(ends)
    tag = f" tag {call.tag}" if call.tag else ""
    name = f"{group.name}: {sender}->{receiver}{tag}"
    return Group(name=name, ranks=(min(ends), max(ends)), desc=f"messages of {group.title}", backend=group.backend)


def _description(group: Group) -> str:
    return group.desc or "undefined"


def _entry(log: RankLog, call: Collective, group: Group) -> dict[str, Any]:
    is_over = call.state is State.COMPLETED
    inputs = _joined(call.inputs) if call.op in _JOINED_INPUTS else call.inputs
    outputs = _joined(call.outputs) if call.op in _JOINED_OUTPUTS else call.outputs
    return {
        "record_id": call.record_id,
        "pg_id": 0,
        "process_group": (group.name, _description(group)),
        "collective_seq_id": call.identity.seq + call.is_p2p,
        "p2p_seq_id": call.identity.seq + 1 if call.is_p2p else 0,
        "profiling_name": f"{_backend(group, call)}:{_title(log.rank, group, call)}",
        "time_created_ns": call.time_created_ns + log.wall_offset_ns,
        "input_sizes": [list(tensor.shape) for tensor in inputs],
        "input_dtypes": [_dtype(tensor) for tensor in inputs],
        "output_sizes": [list(tensor.shape) for tensor in outputs],
        "output_dtypes": [_dtype(tensor) for tensor in outputs],
        "state": str(State.COMPLETED if is_over else State.SCHEDULED),
        "time_discovered_started_ns": None,
        "time_discovered_completed_ns": _ended_ns(log, call) if is_over else None,
        "retired": is_over,
        "timeout_ms": call.timeout_ms,
        "is_p2p": call.is_p2p,
        "thread_id": str(call.thread_id),
        "thread_name": "",
        "frames": [{"name": f.name, "filename": f.filename, "line": f.line} for f in call.frames],
    }


def _ended_ns(log: RankLog, call: Collective) -> int | None:
    return None if call.time_completed_ns is None else call.time_completed_ns + log.wall_offset_ns


def _title(rank: int, group: Group, call: Collective) -> str:
    title = _TITLES[call.op]
    if not call.is_p2p:
        return title
    here = group.ranks.index(rank)  # of two
    return f"{title} {here}{'->' if title == 'send' else '<-'}{1 - here}"


def _backend(group: Group, call: Collective) -> str:
    """Of a group with several (`cpu:gloo,cuda:nccl`) that of the call's device."""
    device = next((tensor.device.partition(":")[0] for tensor in (*call.inputs, *call.outputs)), "cpu")
    by_device = dict(part.rpartition(":")[::2] for part in group.backend.split(","))
    named = by_device.get(device) or by_device.get("", "")
    return named if named in _BACKENDS else "gloo" if device == "cpu" else "nccl"


def _joined(tensors: tuple[TensorMeta, ...]) -> tuple[TensorMeta, ...]:
    """Those that differ in shape stay a list."""
    if len({(tensor.shape, tensor.dtype) for tensor in tensors}) != 1:
        return tensors
    first = tensors[0]
    return (TensorMeta((len(tensors), *first.shape), first.dtype, first.device),)


def _dtype(tensor: TensorMeta) -> str:
    return _DTYPES.get(tensor.dtype, tensor.dtype[:1].upper() + tensor.dtype[1:])
