"""One collective of one rank as a node of the execution graph."""

from __future__ import annotations

from dataclasses import dataclass

from prismdbg.model.collective import Frame, Identity
from prismdbg.model.frame import source_of
from prismdbg.model.moment import Moment
from prismdbg.model.ops import OBJECT_CALLS, OPS


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """One collective. Times count from the first issue in the slice; `completed_ns` is None where it never did.

    thread: issuing threads numbered in the order of their first collective. root and source_rank are
    as in the log. sent_bytes, received_bytes: what of this rank reaches others, and of others this rank.
    waited_ns: when its own thread began to wait for it; None where that is not known, or where it held its issuer.
    parts_sent, parts_received: of an all-to-all, bytes to and from each member in group order; empty if not known.
    synthesized: no real peer answered it: what was received is made up. on_stream: it was issued and left, so that
    its thread went on at once; it completed on a stream of a device.
    """

    record_id: int
    moment: Moment
    identity: Identity
    op: str
    is_async: bool
    root: int
    tag: int
    reduce_op: str
    dtype: str
    sent_bytes: int
    received_bytes: int
    thread: int
    issued_ns: int
    completed_ns: int | None
    source_rank: int
    frames: tuple[Frame, ...]
    waited_ns: int | None = None
    synthesized: bool = False
    on_stream: bool = False
    parts_sent: tuple[int, ...] = ()
    parts_received: tuple[int, ...] = ()

    @property
    def name(self) -> str:
        return OPS[self.op].label if self.op in OPS else self.op

    @property
    def source(self) -> Frame | None:
        return source_of(self.frames)

    @property
    def is_p2p(self) -> bool:
        return bool(self.identity.op)

    @property
    def carries_objects(self) -> bool:
        """How many bytes it moves follows from all members' objects."""
        return any(frame.name in OBJECT_CALLS for frame in self.frames)
