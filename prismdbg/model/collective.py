"""One collective as a rank's log holds it, and what identifies it across ranks. Point-to-point counts as one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from itertools import chain, repeat

from prismdbg.model import synthesis
from prismdbg.model.frame import Frame as Frame
from prismdbg.model.frame import place_of, source_of
from prismdbg.model.moment import Moment
from prismdbg.model.ops import OPS
from prismdbg.model.plain_text import one_line
from prismdbg.model.sketch import Sketch


@dataclass(frozen=True, slots=True)
class TensorMeta:
    """Shape, element type (`float32`, ...) and device (`cpu`, `cuda:0`) of one tensor."""

    shape: tuple[int, ...]
    dtype: str
    device: str = "cpu"

    def __str__(self) -> str:
        return f"{self.dtype}[{', '.join(map(str, self.shape))}]"


class Tensors(tuple[TensorMeta, ...]):
    """A list of tensors in which equal ones follow each other: `runs` tells it short, each with how often it comes."""

    runs: tuple[tuple[TensorMeta, int], ...]

    @classmethod
    def of_runs(cls, runs: Iterable[tuple[TensorMeta, int]]) -> Tensors:
        kept = tuple(runs)
        made = cls(chain.from_iterable(repeat(meta, count) for meta, count in kept))
        made.runs = kept
        return made


def runs_of(tensors: tuple[TensorMeta, ...]) -> tuple[tuple[TensorMeta, int], ...]:
    return tensors.runs if isinstance(tensors, Tensors) else tuple((meta, 1) for meta in tensors)


# The name of process groups that a program makes by hand. Each rank counts the calls in all of its own together, so
# what two ranks call in them cannot be compared, and who is in one is not known.
UNNAMED = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """A process group. `ranks` are global ranks in group order; `desc` is the axis or "default_pg"."""

    name: str
    ranks: tuple[int, ...]
    desc: str = ""
    backend: str = ""

    @property
    def size(self) -> int:
        return len(self.ranks)

    @property
    def title(self) -> str:
        """What every text calls it: `world` for the default group, the mesh axis or the `group_desc` given to
        `new_group`, else torch's `group_name`, a number."""
        if self.desc == "default_pg":
            return "world"
        return one_line(self.desc.removeprefix("mesh_") if self.desc and self.desc != "undefined" else self.name)


def group_title(groups: Mapping[str, Group], name: str) -> str:
    """The title of the group with this name; the name itself if the group is not among `groups`."""
    return groups[name].title if name in groups else name


class State(StrEnum):
    """Flight Recorder's words for how far a collective got."""

    SCHEDULED = "scheduled"
    COMPLETED = "completed"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Identity:
    """What makes it the same collective on another rank or in a replay.

    For collectives (group, seq). For point-to-point (group, op, peer, tag, n-th of these): `peer` is the rank
    in the group, -1 for a receive from any source. `op` is empty for collectives: an all_gather that the peers
    call as all_reduce has the same identity and is a mismatch.
    """

    group: str
    seq: int
    op: str = ""
    peer: int = -1
    tag: int = 0

    def __str__(self) -> str:
        if self.op:
            source = "any" if self.peer < 0 else str(self.peer)
            return f"{self.op} group {self.group} peer {source} tag {self.tag} #{self.seq}"
        return f"group {self.group} #{self.seq}"


@dataclass(frozen=True, slots=True)
class PayloadRef:
    """Where the bytes a rank received lie: all output tensors one after another, contiguous, in order."""

    segment: int
    offset: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Failure:
    """What a failed collective raised: an exception's class by its name, and its text.

    at_issue: by the call itself; else by whoever waited for the work it gave.
    """

    type: str
    text: str
    at_issue: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Collective:
    """One record of the log. Times are CLOCK_MONOTONIC nanoseconds of the rank's machine.

    record_id counts this rank's collectives from 0. `fingerprint` is of what the rank sends at issue
    (`prismdbg.rank.c10d.fingerprint`), None where it sends nothing. `root` is the rank in the group that a rooted
    collective or a point-to-point names, -1 for none.
    """

    record_id: int
    moment: Moment
    identity: Identity
    op: str
    group: str
    is_p2p: bool
    is_async: bool
    root: int
    tag: int
    reduce_op: str
    timeout_ms: int
    inputs: tuple[TensorMeta, ...]
    outputs: tuple[TensorMeta, ...]
    fingerprint: int | None
    sent_nonfinite: bool
    time_created_ns: int
    thread_id: int
    frames: tuple[Frame, ...]
    # filled by the completion record
    state: State = State.SCHEDULED
    time_completed_ns: int | None = None
    received_nonfinite: bool = False
    source_rank: int = -1
    payload: PayloadRef | None = None
    synthesized: bool = False  # answered by assumption, not by real peers
    made: str = synthesis.NOT_KNOWN  # and how, one of `synthesis.WAYS`
    failure: Failure | None = None
    sketch: Sketch | None = None  # of what the rank sends, where it was asked for
    stream: int = 0  # of its tensors' device; 0 is the default one, and a CPU's
    # filled by the record of its wait, where that is known
    time_waited_ns: int | None = None
    waiting_thread_id: int = 0

    @property
    def name(self) -> str:
        """The collective's name as users write it: `all_reduce`, not `allreduce_`."""
        return OPS[self.op].label if self.op in OPS else self.op or "?"

    @property
    def source(self) -> Frame | None:
        """The program's own line."""
        return source_of(self.frames)

    @property
    def place(self) -> str:
        """The program's own line, and the framework's that called for it; empty where no stack was recorded."""
        return place_of(self.frames)

    @property
    def can_be_made_again(self) -> bool:
        """What it received follows from what it sent: no payload is needed to answer it as it was."""
        return self.synthesized and self.made not in synthesis.FROM_OTHERS

    @property
    def is_on_device(self) -> bool:
        """Its tensors are not in the host's memory: it is issued before what it sends is there."""
        tensors = self.inputs or self.outputs
        return bool(tensors) and tensors[0].device != "cpu"

    @property
    def sent_ns(self) -> int:
        """By when what it sends was there: as it was issued, or, on a device, at the latest when it had ended."""
        return (self.time_completed_ns or self.time_created_ns) if self.is_on_device else self.time_created_ns

    @property
    def duration_ns(self) -> int | None:
        return None if self.time_completed_ns is None else self.time_completed_ns - self.time_created_ns
