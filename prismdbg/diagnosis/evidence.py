"""What a diagnosis may rest on: the logs that are there, what is known to be missing, and when the job ended."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from prismdbg.capsule.log.events import RankLog
from prismdbg.capsule.manifest import Incident
from prismdbg.capsule.stacks import RankStacks
from prismdbg.diagnosis.progress import Progress
from prismdbg.log.columns import LogColumns
from prismdbg.log.rank_log import columns_of
from prismdbg.log.segment import Ints
from prismdbg.model.collective import UNNAMED, Group
from prismdbg.telemetry.series import Telemetry

if TYPE_CHECKING:
    from prismdbg.diagnosis.lateness.stragglers import Waits


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenIncident:
    """Kept by the supervisor when it saw it. attempt: of the job, counted from 0. is_captured: there is a capsule of
    it, or what was kept instead."""

    incident: Incident
    ranks: tuple[int, ...]
    attempt: int
    is_captured: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SilentNode:
    """A node whose supervisor has given no heartbeat for too long. ranks: those whose logs say no end. goes_on: its
    ranks have recorded something since, and lately. recorded_s: how long ago they recorded last, if that was clearly
    after the last heartbeat. keeps_logs: they lie on the node, and nobody here sees them."""

    name: str
    ranks: tuple[int, ...]
    silent_s: float
    goes_on: bool = False
    recorded_s: float | None = None
    keeps_logs: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """`logs` by rank, of the last attempt only. `damaged`: why a rank's log cannot be read, or only in part.

    world_size: 0 where nothing says it. silent: ranks whose process is gone and that said neither an exit code nor an
    exception; a launcher ends the others that way when one fails. died_first: the silent rank of which it is known
    that it was gone before any other; deaths_seen_late: only likely so, for what ended it, or whether another died
    before it, was not seen, or only by clocks of which it is not known how far apart they are. ended_wall_ns: when
    the job ended; for a job that runs, now. is_running: None where that is not known; then `ended_wall_ns` is until
    when ranks are known to have been there. asked_only: the ranks that were to be recorded; empty for all. gaps:
    sentences on what was not recorded or is lost besides logs.
    emulated: the mesh of a world that was not there: each rank ran alone, what it received was made up, and times of
    two ranks have nothing to do with each other. attempt: which the logs are of. incidents: of all attempts. stacks:
    of the ranks, where they were taken, at `stacks_wall_ns`, or at an unknown time, from another tool's
    `stacks_file`. interrupted: the job was told to end, at `ended_wall_ns`; the logs end there, too. of_capsule:
    one rank's log, for nothing else is in a capsule. clocks_agree: times of two ranks can be compared. telemetry:
    readings of sensors beside the job, where they were recorded, by the names in `nodes`, or by an empty one.
    folders: names of the ranks' log folders in a run. nodes: where the ranks ran, in a job of several supervisors;
    silent_nodes: of them those of which nothing is heard. exit_codes: of silent ranks that ended by themselves;
    signals: that ended others of them, where the supervisor saw it. unknown_clocks: nodes of which it is not known how
    far their clocks are from the first one's. gone_wall_ns: when ranks were seen to be gone. perhaps_told: it is not
    certain that the job was told to end; `died_first` may have ended alone. exit_code: of the job; None where it is
    not known.
    """

    logs: Mapping[int, RankLog]
    world_size: int = 0
    damaged: Mapping[int, str] = field(default_factory=dict)
    silent: frozenset[int] = frozenset()
    died_first: int | None = None
    deaths_seen_late: bool = False
    is_running: bool | None = False
    ended_wall_ns: int = 0
    asked_only: tuple[int, ...] = ()
    gaps: tuple[str, ...] = ()
    emulated: str = ""
    attempt: int = 0
    incidents: tuple[SeenIncident, ...] = ()
    stacks: Mapping[int, RankStacks] = field(default_factory=dict)
    stacks_wall_ns: int = 0
    stacks_file: str = ""
    interrupted: bool = False
    of_capsule: bool = False
    clocks_agree: bool = True
    telemetry: Mapping[str, Telemetry] = field(default_factory=dict)
    folders: Mapping[int, str] = field(default_factory=dict)
    nodes: Mapping[int, str] = field(default_factory=dict)
    silent_nodes: tuple[SilentNode, ...] = ()
    exit_codes: Mapping[int, int] = field(default_factory=dict)
    signals: Mapping[int, int] = field(default_factory=dict)
    unknown_clocks: frozenset[str] = frozenset()
    gone_wall_ns: Mapping[int, int] = field(default_factory=dict)
    perhaps_told: bool = False
    exit_code: int | None = None
    rows_by_group: dict[tuple[str, bool], dict[int, Ints]] = field(
        default_factory=dict, init=False, compare=False, repr=False
    )  # what `cross_rank` has found
    waits: dict[str, Waits] = field(
        default_factory=dict, init=False, compare=False, repr=False
    )  # what `waits_by_group` has found: several findings rest on it
    _columns: dict[int, LogColumns] = field(default_factory=dict, init=False, compare=False, repr=False)

    @property
    def columns(self) -> Mapping[int, LogColumns]:
        """The logs, for whoever looks at all of a long one."""
        if self._columns.keys() != self.logs.keys():
            self._columns.update({rank: columns_of(log) for rank, log in self.logs.items()})
        return self._columns

    def telemetry_of(self, rank: int) -> Telemetry | None:
        """Of the node on which it ran."""
        return self.telemetry.get(self.nodes.get(rank, ""))

    def clock_ahead_ns(self, rank: int, other: int) -> int:
        """By how much the clock in one rank's log is ahead of that in another's, which are the same on one node."""
        if self.nodes.get(rank, "") == self.nodes.get(other, ""):
            return 0
        return self.columns[other].wall_offset_ns - self.columns[rank].wall_offset_ns

    def progress(self) -> dict[int, Progress]:
        """A rank whose log breaks off is not held to what it lacks."""
        ranks = {rank: Progress.of(log) for rank, log in self.columns.items()}
        for rank in ranks.keys() & self.damaged.keys():
            ranks[rank].lost = self.damaged[rank]
        return ranks

    def parked_steps(self) -> frozenset[int]:
        """Steps in which a rank was held for an image, and those after: the others waited for that."""
        return frozenset(
            step for log in self.columns.values() for first, last in _parked_steps(log) for step in range(first, last)
        )

    def group(self, name: str) -> Group:
        """As any rank described it."""
        for log in self.logs.values():
            if name in log.groups and name != UNNAMED:
                return log.groups[name]
        return Group(name=name, ranks=())

    def is_one_group(self, name: str) -> bool:
        """Whether all logs that describe a group of that name mean the same ranks. torch gives names again after
        `destroy_process_group`, and to groups that were split from different parents."""
        return name != UNNAMED and len({log.groups[name].ranks for log in self.logs.values() if name in log.groups}) < 2

    @property
    def known_world_size(self) -> int:
        """At least this many ranks."""
        # Each list once: ranks share them where another tool's files are read.
        told = {id(log.groups): log.groups for log in self.logs.values()}
        lists = {id(group.ranks): group.ranks for groups in told.values() for group in groups.values()}
        members = (max(ranks) + 1 for ranks in lists.values() if ranks)
        return max(self.world_size, max(self.logs, default=-1) + 1, max(members, default=0))

    @property
    def absent(self) -> tuple[int, ...]:
        """Ranks of which no log can be read."""
        return tuple(rank for rank in range(self.known_world_size) if rank not in self.logs)

    def folder_name(self, rank: int) -> str:
        """Of the rank's log in a run."""
        return self.folders.get(rank, str(rank))

    def wall_ns(self, rank: int, time_ns: int) -> int:
        return time_ns + self.logs[rank].wall_offset_ns


def parks(log: LogColumns) -> Iterator[tuple[int, int | None]]:
    """From when to when the rank was held for an image, each time; None where that is not over."""
    since_ns: int | None = None
    for note in log.notes:
        if note.kind == "parked":
            since_ns = note.time_ns
        elif note.kind == "released" and since_ns is not None:
            yield since_ns, note.time_ns
            since_ns = None
    if since_ns is not None:
        yield since_ns, None


def _parked_steps(log: LogColumns) -> Iterator[tuple[int, int]]:
    """For each park its first step, and the first that it has no part in. One that is not over lasts on."""
    marks = [mark.time_ns for mark in log.steps]
    for since_ns, until_ns in parks(log):
        since = _step_at(log, marks, since_ns)
        if until_ns is None:
            yield since, int(log.step.max(initial=since)) + 1
        else:
            yield since, _step_at(log, marks, until_ns) + 2


def _step_at(log: LogColumns, marks: list[int], time_ns: int) -> int:
    before = bisect_right(marks, time_ns)
    return log.steps[before - 1].step if before else 0
