"""How long a replayed rank must be silent, after all that is recorded of it, until a replay waits no longer: then a
hang has happened again, and a death has not."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from prismdbg.capsule.capsule_dir import Capsule
from prismdbg.capsule.log.events import RankLog
from prismdbg.capsule.manifest import IncidentKind
from prismdbg.capsule.stacks import capsule_stacks
from prismdbg.diagnosis.hang import LONGER_THAN_BEFORE, NS_PER_S
from prismdbg.jobs.replay.verdict import is_from_outside
from prismdbg.model.collective import Collective

LEAST_S = 10.0
MOST_LIVED_S = 900.0  # a capsule may have been made long after the death
BOUNDED = (IncidentKind.HANG, IncidentKind.LOST)  # after which the recorded rank issued nothing


@dataclass(frozen=True, slots=True, kw_only=True)
class Silence:
    """longest_s: the longest time that the recorded rank was between two collectives. hung_s: how long it had been
    silent when it was found to hang; None where the capsule does not say. lived_s: how long it may have been silent
    before it died, where it may have died of what it did then.

    A replay that computes is silent for as long as the recorded rank was, so only more than that is a hang.
    """

    longest_s: float = 0.0
    hung_s: float | None = None
    lived_s: float | None = None

    @property
    def bound_s(self) -> float:
        return max(LEAST_S, LONGER_THAN_BEFORE * self.longest_s, self.hung_s or 0.0, self.lived_s or 0.0)

    def __str__(self) -> str:
        found = f", and the hang was found after {self.hung_s:.3g} s of silence" if self.hung_s is not None else ""
        if self.lived_s is not None:
            found = f", and the rank died after at most {self.lived_s:.3g} s of silence"
        return f"in the recording, the longest gap between two collectives was {self.longest_s:.3g} s{found}"


def recorded_silence(capsule: Capsule, log: RankLog) -> Silence:
    taken, last_ns = capsule_stacks(capsule), max(map(_ended_ns, log.collectives), default=0)
    longest_ns = max(_pauses_ns(log.collectives), default=0)
    hung_ns = taken.taken_wall_ns - log.wall_offset_ns - last_ns if taken is not None and last_ns else 0
    manifest = capsule.manifest
    may_die = manifest.incident.kind is IncidentKind.LOST and not is_from_outside(capsule.rank().get("died_with"))
    lived_ns = manifest.created_ns - log.wall_offset_ns - last_ns if may_die and last_ns else 0
    return Silence(
        longest_s=longest_ns / NS_PER_S,
        hung_s=hung_ns / NS_PER_S if hung_ns > 0 else None,
        lived_s=min(lived_ns / NS_PER_S, MOST_LIVED_S) if lived_ns > 0 else None,
    )


def _pauses_ns(records: Iterable[Collective]) -> Iterable[int]:
    """Of each thread from the end of one collective to its next."""
    ended: dict[int, int] = {}
    for record in records:
        before = ended.get(record.thread_id)
        if before is not None:
            yield record.time_created_ns - before
        ended[record.thread_id] = _ended_ns(record)


def _ended_ns(record: Collective) -> int:
    """When it held its thread no longer: on a device as soon as it was issued."""
    return record.time_created_ns if record.is_on_device else max(record.time_created_ns, record.time_completed_ns or 0)
