"""A rank's slice of the execution graph: its collectives from A to B, as values. No fingerprints, no payloads.

What lies between two collectives is not recorded in production and not in here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

from prismdbg.capsule.log.events import RankLog
from prismdbg.capsule.log.notes import DEVICE_WAITS, PARTS, SHAPING
from prismdbg.model import dtypes, ops, synthesis
from prismdbg.model.collective import Collective, Group, TensorMeta, runs_of
from prismdbg.model.moment import Moment
from prismdbg.model.ops import OPS, Form, Movement, ops_of
from prismdbg.rank_graph.node import Node

Parts = tuple[tuple[int, ...], tuple[int, ...]]
FROM_ROOT = ops_of(*ops.FROM_ROOT)
TO_ROOT = ops_of(*ops.TO_ROOT)
_GATHERED = ops_of(Movement.ALL_GATHER)
_SCATTERED = ops_of(Movement.REDUCE_SCATTER)


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphSlice:
    """`nodes` in the order of issue. `begins_ns`: CLOCK_MONOTONIC of the rank's machine at the first issue.

    A group that the log does not describe has no ranks.
    """

    rank: int
    first: Moment
    last: Moment
    begins_ns: int
    groups: dict[str, Group]
    nodes: tuple[Node, ...]


def build_slice(log: RankLog, first: Moment, last: Moment) -> GraphSlice:
    """Everything that was issued from `first` to `last`, both included."""
    issued = sorted((c for c in log.collectives if first <= c.moment <= last), key=lambda c: c.record_id)
    begins_ns = min((c.time_created_ns for c in issued), default=0)
    threads: dict[int, int] = {}
    for collective in issued:
        threads.setdefault(collective.thread_id, len(threads))
    parts = {str(n.data["identity"]): n.data for n in log.notes if n.kind == PARTS}
    groups_on_streams = streamed_groups(log)
    has_parts = not _has_synthesized_counts(log)
    groups = {c.group: log.groups.get(c.group, Group(name=c.group, ranks=())) for c in issued}
    return GraphSlice(
        rank=log.rank,
        first=first,
        last=last,
        begins_ns=begins_ns,
        groups=groups,
        nodes=tuple(
            _node(
                c,
                log.rank,
                groups[c.group],
                begins_ns,
                threads[c.thread_id],
                _parts(c, groups[c.group], parts) if has_parts else ((), ()),
                on_stream=c.group in groups_on_streams and is_on_stream(c),
            )
            for c in issued
        ),
    )


def streamed_groups(log: RankLog) -> frozenset[str]:
    """Groups some of whose calls were waits on a device: they were issued and left."""
    return frozenset(str(n.data["group"]) for n in log.notes if n.kind == DEVICE_WAITS and "group" in n.data)


def is_on_stream(collective: Collective) -> bool:
    """Whether a call of such a group was one."""
    return collective.is_on_device and not _is_barrier(collective)


def _is_barrier(collective: Collective) -> bool:
    spec = OPS.get(collective.op)
    return spec is not None and spec.movement is Movement.BARRIER


def _has_synthesized_counts(log: RankLog) -> bool:
    """Then what it sends another rank is not what that one expects, by the rule that synthesized the counts."""
    rows = (row for note in log.notes if note.kind == SHAPING for row in note.data.get("rows", ()))
    return any(row.get("how") != synthesis.DONOR for row in rows)


def _parts(collective: Collective, group: Group, noted: Mapping[str, Mapping[str, Any]]) -> Parts:
    """To and from each member. What is not noted is even, as far as notes were taken: in an emulation."""
    spec = OPS.get(collective.op)
    if spec is None or spec.movement is not Movement.ALL_TO_ALL:
        return (), ()
    if (note := noted.get(str(collective.identity))) is not None:
        return tuple(note["parts_sent"]), tuple(note["parts_received"])
    if spec.form is Form.LISTED:
        inputs, outputs = ([_size_bytes((t,)) for t in tensors] for tensors in (collective.inputs, collective.outputs))
        return tuple(inputs), tuple(outputs)
    if not collective.synthesized or not group.size:
        return (), ()
    sent, received = (_size_bytes(tensors) // group.size for tensors in (collective.inputs, collective.outputs))
    return (sent,) * group.size, (received,) * group.size


def _node(
    collective: Collective, rank: int, group: Group, begins_ns: int, thread: int, parts: Parts, *, on_stream: bool
) -> Node:
    tensors = collective.inputs or collective.outputs
    sent_bytes, received_bytes = _sizes(collective, group, rank)
    done = collective.time_completed_ns
    waited = collective.time_waited_ns if collective.waiting_thread_id == collective.thread_id else None
    return Node(
        record_id=collective.record_id,
        moment=collective.moment,
        identity=collective.identity,
        op=collective.op,
        is_async=collective.is_async,
        root=collective.root,
        tag=collective.tag,
        reduce_op=collective.reduce_op,
        dtype=tensors[0].dtype if tensors else "",
        sent_bytes=sent_bytes,
        received_bytes=received_bytes,
        thread=thread,
        issued_ns=collective.time_created_ns - begins_ns,
        completed_ns=None if done is None else done - begins_ns,
        source_rank=collective.source_rank,
        frames=collective.frames,
        waited_ns=None if waited is None else waited - begins_ns,
        synthesized=collective.synthesized,
        on_stream=on_stream,
        parts_sent=parts[0],
        parts_received=parts[1],
    )


def _sizes(collective: Collective, group: Group, rank: int) -> tuple[int, int]:
    """Bytes sent and received. Another tool's file may have one part alone, which is that of each member then."""
    role = (collective.op, collective.root, group, rank)
    sent = _size_bytes(collective.inputs) if gives(*role) else 0
    received = _size_bytes(collective.outputs) if takes(*role) else 0
    if collective.op in _GATHERED and not collective.outputs:
        return sent, sent * group.size
    if collective.op in _SCATTERED and not collective.inputs:
        return received * group.size, received
    return sent, received


def _size_bytes(tensors: tuple[TensorMeta, ...]) -> int:
    return sum(prod(t.shape) * dtypes.ITEM_BYTES.get(t.dtype, 0) * count for t, count in runs_of(tensors))


def global_rank(group: Group, rank_in_group: int) -> int | None:
    return group.ranks[rank_in_group] if 0 <= rank_in_group < group.size else None


def gives(op: str, root: int, group: Group, rank: int) -> bool:
    """Whether what `rank` passes in reaches the others; assumed where the group is not described."""
    return op not in FROM_ROOT or global_rank(group, root) in (rank, None)


def takes(op: str, root: int, group: Group, rank: int) -> bool:
    """Whether something of the others reaches `rank`."""
    if op in FROM_ROOT:
        return global_rank(group, root) != rank
    return op not in TO_ROOT or global_rank(group, root) in (rank, None)
