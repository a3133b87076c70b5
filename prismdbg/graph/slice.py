"""A rank's slice of the execution graph: its collectives from A to B, as values. No fingerprints, no payloads.

What lies between two collectives is not recorded in production and not in here.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from prismdbg.capsule.log_events import RankLog
from prismdbg.graph.node import Node
from prismdbg.graph.roles import gives, takes
from prismdbg.model import dtypes
from prismdbg.model.collective import Collective, Group, State, TensorMeta, runs_of
from prismdbg.model.moment import Moment


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
    groups = {c.group: log.groups.get(c.group, Group(name=c.group, ranks=())) for c in issued}
    return GraphSlice(
        rank=log.rank,
        first=first,
        last=last,
        begins_ns=begins_ns,
        groups=groups,
        nodes=tuple(_node(c, log.rank, groups[c.group], begins_ns, threads[c.thread_id]) for c in issued),
    )


def _node(collective: Collective, rank: int, group: Group, begins_ns: int, thread: int) -> Node:
    role = (collective.op, collective.root, group, rank)
    tensors = collective.inputs or collective.outputs
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
        sent_bytes=_size_bytes(collective.inputs) if gives(*role) else 0,
        received_bytes=_size_bytes(collective.outputs) if takes(*role) else 0,
        thread=thread,
        issued_ns=collective.time_created_ns - begins_ns,
        completed_ns=None if done is None else done - begins_ns,
        has_failed=collective.state is State.FAILED,
        source_rank=collective.source_rank,
        frames=collective.frames,
        waited_ns=None if waited is None else waited - begins_ns,
        synthesized=collective.synthesized,
    )


def _size_bytes(tensors: tuple[TensorMeta, ...]) -> int:
    return sum(prod(t.shape) * dtypes.ITEM_BYTES.get(t.dtype, 0) * count for t, count in runs_of(tensors))
