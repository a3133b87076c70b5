"""What another tool's files say of a job, in the values of our own log."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from prismdbg.capsule.log.events import RankLog
from prismdbg.capsule.stacks import RankStacks


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedJob:
    """`logs` by rank. `damaged`: why a rank's file cannot be read. `gaps`: sentences on what the files do not say.
    world_size: 0 where no file says it. hosts: by rank where it ran, if its times may be compared with those of other
    ranks on that machine; empty for times that may not be compared. stacks: of ranks, from `stacks_file`, taken at a
    time that cannot be compared with that of any call.
    """

    logs: Mapping[int, RankLog]
    damaged: Mapping[int, str]
    gaps: tuple[str, ...]
    world_size: int = 0
    hosts: Mapping[int, str] = field(default_factory=dict)
    stacks: Mapping[int, RankStacks] = field(default_factory=dict)
    stacks_file: str = ""
