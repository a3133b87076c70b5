"""The 20 operators of `c10d::` that carry every collective, and where each argument stands in its schema."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class OpSpec:
    """Argument positions in the schema of `c10d::<name>` (torch 2.13, `c10d/Ops.cpp`).

    returns: "pair" (tensors, work), "work", or "nothing".
    """

    name: str
    label: str
    group: int
    outputs: int | None = None
    inputs: int | None = None
    reduce_op: int | None = None
    root: int | None = None
    tag: int | None = None
    async_op: int | None = None
    timeout: int | None = None
    returns: str = "work"

    @property
    def is_p2p(self) -> bool:
        return self.name in ("send", "recv_", "recv_any_source_")


def _spec(name: str, label: str, group: int, **positions: object) -> tuple[str, OpSpec]:
    return name, OpSpec(name=name, label=label, group=group, **positions)  # type: ignore[arg-type]


OPS: dict[str, OpSpec] = dict(
    [
        _spec(
            "allreduce_",
            "all_reduce",
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
            1,
            outputs=0,
            inputs=0,
            reduce_op=2,
            async_op=3,
            timeout=4,
        ),
        _spec("allgather_", "all_gather", 2, outputs=0, inputs=1, async_op=3, timeout=4, returns="pair"),
        _spec(
            "_allgather_base_",
            "all_gather_into_tensor",
            2,
            outputs=0,
            inputs=1,
            async_op=3,
            timeout=4,
            returns="pair",
        ),
        _spec("allgather_coalesced_", "all_gather_coalesced", 2, outputs=0, inputs=1, async_op=3),
        _spec(
            "allgather_into_tensor_coalesced_",
            "all_gather_into_tensor_coalesced",
            2,
            outputs=0,
            inputs=1,
            async_op=3,
        ),
        _spec(
            "reduce_scatter_",
            "reduce_scatter",
            2,
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
            2,
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
            2,
            outputs=0,
            inputs=1,
            reduce_op=3,
            async_op=4,
            timeout=5,
        ),
        _spec("broadcast_", "broadcast", 1, outputs=0, inputs=0, root=2, async_op=4, timeout=5, returns="pair"),
        _spec("reduce_", "reduce", 1, outputs=0, inputs=0, reduce_op=2, root=3, async_op=5, timeout=6),
        _spec("gather_", "gather", 2, outputs=0, inputs=1, root=3, async_op=4, timeout=5),
        _spec("scatter_", "scatter", 2, outputs=0, inputs=1, root=3, async_op=4, timeout=5, returns="pair"),
        _spec("alltoall_", "all_to_all", 2, outputs=0, inputs=1, async_op=3, timeout=4, returns="pair"),
        _spec("alltoall_base_", "all_to_all_single", 2, outputs=0, inputs=1, async_op=5, timeout=6),
        _spec("send", "send", 1, inputs=0, root=2, tag=3),
        _spec("recv_", "recv", 1, outputs=0, root=2, tag=3),
        _spec("recv_any_source_", "recv_any_source", 1, outputs=0, tag=2),
        _spec("barrier", "barrier", 1, async_op=3, timeout=4),
        _spec("monitored_barrier_", "monitored_barrier", 1, timeout=3, returns="nothing"),
    ]
)
