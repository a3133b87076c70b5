"""The operators of `c10d::` that carry every collective: where each argument stands in its schema, and what it does.

A new one is one entry of `OPS`. What every operator must be known for elsewhere (what a backend allocates for it, what
colour it has) is checked at import against this table.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum


class Movement(Enum):
    """What becomes of what the members pass in. Of a reduction all of them are combined."""

    ALL_REDUCE = "everybody gets the whole reduction"
    REDUCE = "the root gets it"
    REDUCE_SCATTER = "everybody gets a share of it"
    ALL_GATHER = "everybody gets all parts"
    GATHER = "the root gets them"
    BROADCAST = "everybody gets what the root has"
    SCATTER = "everybody gets a part of it"
    ALL_TO_ALL = "everybody gets a part of each"
    SEND = "a peer gets it"
    RECEIVE = "a peer's is got"
    BARRIER = "nothing moves"


class Form(Enum):
    """How the members' parts stand in the tensors."""

    ALIKE = "each tensor is the same on every member"
    LISTED = "a list, one tensor for each member"
    FLAT = "one tensor, one part after the other"


REDUCTIONS = (Movement.ALL_REDUCE, Movement.REDUCE, Movement.REDUCE_SCATTER)
FROM_ROOT = (Movement.BROADCAST, Movement.SCATTER)
TO_ROOT = (Movement.REDUCE, Movement.GATHER)
ONLY_THE_SENDER_KNOWS = (*FROM_ROOT, Movement.RECEIVE)  # what is received follows from nothing that this rank sends


@dataclass(frozen=True, slots=True, kw_only=True)
class OpSpec:
    """Argument positions in the schema of `c10d::<name>` (torch 2.14, `c10d/Ops.cpp`); in
    another torch they are found by the arguments' names (`rank/c10d/schemas.py`).

    output_splits, input_splits: how many rows come from, and go to, each member; an empty list means equally many.
    returns: "pair" (tensors, work), "work", or "nothing".
    """

    name: str
    label: str
    movement: Movement
    form: Form
    group: int
    outputs: int | None = None
    inputs: int | None = None
    reduce_op: int | None = None
    root: int | None = None
    tag: int | None = None
    async_op: int | None = None
    timeout: int | None = None
    output_splits: int | None = None
    input_splits: int | None = None
    returns: str = "work"

    @property
    def is_p2p(self) -> bool:
        return self.movement in (Movement.SEND, Movement.RECEIVE)

    @property
    def is_from_any(self) -> bool:
        """Whom a receive came from is known once it is complete."""
        return self.movement is Movement.RECEIVE and self.root is None


def _spec(
    name: str, label: str, movement: Movement, group: int, *, form: Form = Form.ALIKE, **positions: object
) -> tuple[str, OpSpec]:
    return name, OpSpec(name=name, label=label, movement=movement, form=form, group=group, **positions)  # type: ignore[arg-type]


OPS: dict[str, OpSpec] = dict(
    [
        _spec(
            "allreduce_",
            "all_reduce",
            Movement.ALL_REDUCE,
            1,
            outputs=0,
            inputs=0,
            reduce_op=2,
            async_op=4,
            timeout=5,
            returns="pair",
        ),
        _spec(
            "allreduce_coalesced_",
            "all_reduce_coalesced",
            Movement.ALL_REDUCE,
            1,
            outputs=0,
            inputs=0,
            reduce_op=2,
            async_op=3,
            timeout=4,
        ),
        _spec(
            "allgather_",
            "all_gather",
            Movement.ALL_GATHER,
            2,
            form=Form.LISTED,
            outputs=0,
            inputs=1,
            async_op=3,
            timeout=4,
            returns="pair",
        ),
        _spec(
            "_allgather_base_",
            "all_gather_into_tensor",
            Movement.ALL_GATHER,
            2,
            form=Form.FLAT,
            outputs=0,
            inputs=1,
            async_op=3,
            timeout=4,
            returns="pair",
        ),
        _spec(
            "allgather_coalesced_",
            "all_gather_coalesced",
            Movement.ALL_GATHER,
            2,
            form=Form.LISTED,
            outputs=0,
            inputs=1,
            async_op=3,
        ),
        _spec(
            "allgather_into_tensor_coalesced_",
            "all_gather_into_tensor_coalesced",
            Movement.ALL_GATHER,
            2,
            form=Form.FLAT,
            outputs=0,
            inputs=1,
            async_op=3,
        ),
        _spec(
            "reduce_scatter_",
            "reduce_scatter",
            Movement.REDUCE_SCATTER,
            2,
            form=Form.LISTED,
            outputs=0,
            inputs=1,
            reduce_op=3,
            async_op=4,
            timeout=5,
            returns="pair",
        ),
        _spec(
            "_reduce_scatter_base_",
            "reduce_scatter_tensor",
            Movement.REDUCE_SCATTER,
            2,
            form=Form.FLAT,
            outputs=0,
            inputs=1,
            reduce_op=3,
            async_op=4,
            timeout=5,
            returns="pair",
        ),
        _spec(
            "reduce_scatter_tensor_coalesced_",
            "reduce_scatter_tensor_coalesced",
            Movement.REDUCE_SCATTER,
            2,
            form=Form.FLAT,
            outputs=0,
            inputs=1,
            reduce_op=3,
            async_op=4,
            timeout=5,
        ),
        _spec(
            "broadcast_",
            "broadcast",
            Movement.BROADCAST,
            1,
            outputs=0,
            inputs=0,
            root=2,
            async_op=4,
            timeout=5,
            returns="pair",
        ),
        _spec("reduce_", "reduce", Movement.REDUCE, 1, outputs=0, inputs=0, reduce_op=2, root=3, async_op=5, timeout=6),
        _spec(
            "gather_",
            "gather",
            Movement.GATHER,
            2,
            form=Form.LISTED,
            outputs=0,
            inputs=1,
            root=3,
            async_op=4,
            timeout=5,
        ),
        _spec(  # since torch 2.14
            "gather_into_tensor_",
            "gather_single",
            Movement.GATHER,
            2,
            form=Form.FLAT,
            outputs=0,
            inputs=1,
            root=3,
            async_op=4,
            timeout=5,
            returns="pair",
        ),
        _spec(
            "scatter_",
            "scatter",
            Movement.SCATTER,
            2,
            form=Form.LISTED,
            outputs=0,
            inputs=1,
            root=3,
            async_op=4,
            timeout=5,
            returns="pair",
        ),
        _spec(
            "alltoall_",
            "all_to_all",
            Movement.ALL_TO_ALL,
            2,
            form=Form.LISTED,
            outputs=0,
            inputs=1,
            async_op=3,
            timeout=4,
            returns="pair",
        ),
        _spec(
            "alltoall_base_",
            "all_to_all_single",
            Movement.ALL_TO_ALL,
            2,
            form=Form.FLAT,
            outputs=0,
            inputs=1,
            output_splits=3,
            input_splits=4,
            async_op=5,
            timeout=6,
        ),
        _spec("send", "send", Movement.SEND, 1, inputs=0, root=2, tag=3),
        _spec("recv_", "recv", Movement.RECEIVE, 1, outputs=0, root=2, tag=3),
        _spec("recv_any_source_", "recv_any_source", Movement.RECEIVE, 1, outputs=0, tag=2),
        _spec("barrier", "barrier", Movement.BARRIER, 1, async_op=3, timeout=4),
        _spec("monitored_barrier_", "monitored_barrier", Movement.BARRIER, 1, timeout=3, returns="nothing"),
    ]
)


def ops_of(*movements: Movement, form: Form | None = None) -> frozenset[str]:
    """Names in `OPS`. `form`: only those of this one."""
    return frozenset(
        name for name, spec in OPS.items() if spec.movement in movements and (form is None or spec.form is form)
    )


# no member goes on before all have joined it
FOR_ALL = ops_of(Movement.ALL_REDUCE, Movement.ALL_GATHER, Movement.REDUCE_SCATTER, Movement.BARRIER)
BARRIERS = ops_of(Movement.BARRIER)


def check_complete(known: Iterable[str], what: str) -> None:
    """At import of a module that says something (`what`) of every operator. Raises `LookupError` for one that lacks."""
    if missing := sorted(set(OPS) - set(known)):
        raise LookupError(f"{what} lacks {', '.join(missing)}, which model/ops.py has")


# Functions of torch.distributed that carry pickles, in collectives of bytes: as many as the largest needs.
OBJECT_CALLS = frozenset(
    {
        "all_gather_object",
        "gather_object",
        "broadcast_object_list",
        "scatter_object_list",
        "send_object_list",
        "recv_object_list",
    }
)
