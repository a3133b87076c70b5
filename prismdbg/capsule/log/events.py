"""What a rank's log tells, as values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from prismdbg.capsule.log import format as fmt
from prismdbg.capsule.log.batch import Batch
from prismdbg.capsule.log.clock_reads import ClockRead
from prismdbg.model.collective import Collective, Group


@dataclass(frozen=True, slots=True)
class StepMark:
    """`step` begins at `time_ns`."""

    step: int
    time_ns: int
    source: fmt.StepSource


@dataclass(frozen=True, slots=True)
class Note:
    """Something the recorder said once: kind is `lost`, `parked`, `incident`, `exit`, ..., `data` the rest."""

    kind: str
    time_ns: int
    data: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Completion:
    """A collective known before is now complete or failed; `collective` is the record with both halves."""

    collective: Collective


@dataclass(frozen=True, slots=True)
class Waited:
    """A thread began to wait for a collective that was issued before."""

    record_id: int
    time_ns: int
    thread_id: int


Event = Collective | Completion | Waited | StepMark | Note | Group | Batch | ClockRead


@dataclass(slots=True)
class RankLog:
    """All of a log up to one instant. `wall_offset_ns` added to a time gives nanoseconds since 1970. `collectives`: in
    the order of issue; they may be decoded as they are asked for."""

    rank: int
    pid: int
    wall_offset_ns: int
    collectives: Sequence[Collective] = field(default_factory=list)
    steps: list[StepMark] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)
    groups: dict[str, Group] = field(default_factory=dict)
    clock_reads: list[ClockRead] = field(default_factory=list)

    @property
    def dropped(self) -> int:
        """How many collectives the rank had issued that the log no longer has."""
        return self.collectives[-1].record_id + 1 - len(self.collectives) if self.collectives else 0
