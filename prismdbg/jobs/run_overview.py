"""A recorded job for one look: how far each rank came, how long it waited, who waited for it, and what `why` finds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from prismdbg.capsule import layout
from prismdbg.diagnosis.evidence import Evidence
from prismdbg.diagnosis.lateness.rank_times import NO_TIME, RankTime, line_name, op_name, rank_times, whole_since_ns
from prismdbg.diagnosis.lateness.stragglers import (
    Waits,
    held_ns,
    median_of_others,
    unknown_waits,
    wait_begins_ns,
    waits_by_group,
)
from prismdbg.diagnosis.lateness.time_parts import PARTS, Floats, shares
from prismdbg.diagnosis.stops import Stopped
from prismdbg.jobs.evidence import gather
from prismdbg.jobs.storage.emulated_run import read_emulated
from prismdbg.jobs.storage.job_telemetry import AT_ONCE
from prismdbg.jobs.storage.peak import peak_of
from prismdbg.jobs.storage.run_folder import RunFolder, rank_of
from prismdbg.jobs.storage.run_report import RankState, StatesSeen, rank_states
from prismdbg.log.columns import NOT_ENDED, LogColumns, while_folded
from prismdbg.log.segment import Ints
from prismdbg.model.frame import source_of
from prismdbg.model.moment import Moment
from prismdbg.telemetry import sensor as names
from prismdbg.telemetry.sensor import UTILIZATION, rank_subject

if TYPE_CHECKING:
    from prismdbg.diagnosis.why import Diagnosis

SHOWN_RANKS = 8  # that one waited for
CPU, QUEUE, GPU = SENSORS = ("CPU", "queue", "GPU")
_GOES_ON = ("running", "parked", "stopped")  # states in which a rank may be between two collectives


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitedFor:
    """How long one rank waited for `rank`, which came last. longest: the moment of the longest of these waits, on the
    rank that waited. when: shape (PARTS,), by part of the time the share of it, 0 to 1, that it so waited."""

    rank: int
    waited_ns: int
    longest: Moment
    when: Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class RankRow:
    """`folder`: with the attempt, `3.1`. last: the last collective, `all_reduce`, and at: its line, `train.py:61`; both
    are empty where the log holds none. waited_ns: longer than the rank that came last, in collectives that all of the
    group completed; awaited_ns: how long the others waited for this rank, in the middle of them. peak_bytes: of the
    process, 0 where nobody looked. inside: shape (PARTS,), by part of the time the share of it, 0 to 1, in which the
    rank was inside a collective. sensors: by their titles in SENSORS, shares of the time, 0 to 1: that its main thread
    ran, and waited for a CPU, and that its GPUs were busy, as far as that was read. waited_for: the ranks that it
    waited for longest, at most SHOWN_RANKS. known_waits: of how many of its collectives the waits are known;
    unknown_waits: of how many that ended they are not. time: when it waited, and when others did; NO_TIME of
    `read_rows`."""

    rank: int
    folder: str
    state: str
    moment: str
    collectives: int
    last: str
    at: str
    waited_ns: int
    awaited_ns: int
    peak_bytes: int
    inside: Floats
    sensors: Mapping[str, float] = field(default_factory=dict)
    waited_for: tuple[WaitedFor, ...] = ()
    known_waits: int = 0
    unknown_waits: int = 0
    time: RankTime = NO_TIME


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOverview:
    """`ranks`: of the last attempt, by number. lasted_ns: what the logs cover of the job, PARTS equal parts, from
    `begun_ns` of the clock; it is the newest part of the job where it `begins_later` than the job.
    clocks_agree: whether times of its ranks can be compared. is_imported: of another tool's files, from which no rank
    can be opened. is_running: None where that is not known."""

    path: Path
    ranks: tuple[RankRow, ...]
    diagnosis: Diagnosis
    is_running: bool | None
    lasted_ns: int
    clocks_agree: bool = True
    is_imported: bool = False
    begun_ns: int = 0
    begins_later: bool = False


def is_recorded_job(path: Path) -> bool:
    """A run that was recorded, not emulated, and of more than one rank; or another tool's files."""
    run = RunFolder(path)
    if not run.run_json.is_file():
        from prismdbg.importers.formats import is_imported  # no run needs them

        return path.exists() and not (path / layout.MANIFEST).is_file() and is_imported(path)
    if read_emulated(run) is not None:
        return False
    return len({rank_of(folder) for folder in run.rank_folders()}) > 1


def read_overview(path: Path) -> RunOverview:
    """While the job runs, or afterwards. `CapsuleError` where no log is there."""
    return while_folded(lambda: replace(overview_of(path, *_read(path)), is_imported=_is_of_another_tool(path)))


def read_rows(path: Path) -> tuple[RankRow, ...]:
    """The ranks of `read_overview`, for whoever shows no finding: none is searched for, which takes long."""
    return while_folded(lambda: tuple(rows_of(*_read(path))))


def _is_of_another_tool(path: Path) -> bool:
    return not RunFolder(path).run_json.is_file()


def _read(path: Path) -> tuple[Evidence, Mapping[int, RankState], Mapping[int, int]]:
    """The logs; then by rank its state, and its peak of memory as far as it is known."""
    if _is_of_another_tool(path):
        evidence = gather(path)
        return evidence, {rank: _traced(rank, log) for rank, log in evidence.columns.items()}, {}
    run = RunFolder.existing(path)
    seen = StatesSeen(run)
    evidence = gather(path, each=seen.add)
    found = rank_states(run, seen=seen.states)
    states = {rank_of(Path(state.name)): state for state in found}  # the last attempt of a rank comes last
    return evidence, states, {rank: peak_of(run.latest(rank)) for rank in states}


def _traced(rank: int, log: LogColumns) -> RankState:
    return RankState(
        name=str(rank),
        state="imported",
        moment=str(log.last_moment),
        collectives=log.issued,
        in_flight=int((log.ended_ns == NOT_ENDED).sum()),
        steps=len(log.steps),
        window="-",
        log_bytes=0,
        payload_bytes=0,
        lost="",
    )


def overview_of(
    path: Path, evidence: Evidence, states: Mapping[int, RankState], peaks: Mapping[int, int]
) -> RunOverview:
    """`states`, and peaks of memory in bytes, by rank; a rank without a state has no row."""
    from prismdbg.diagnosis.why import diagnose  # whoever wants only the rows searches for no finding

    known, (begun_ns, ended_ns) = _known_waits(evidence), _span(evidence)
    edges = np.linspace(begun_ns, ended_ns, PARTS + 1)
    diagnosis = diagnose(evidence)
    stops = [verdict for verdict in diagnosis.verdicts if isinstance(verdict, Stopped)]
    running = {rank for rank, state in states.items() if state.state in _GOES_ON}
    times = rank_times(evidence, known.values(), stops, running, edges)
    return RunOverview(
        path=path,
        ranks=tuple(replace(row, time=times[row.rank]) for row in _rows(evidence, states, peaks, known, edges)),
        diagnosis=diagnosis,
        is_running=evidence.is_running,
        lasted_ns=ended_ns - begun_ns,
        clocks_agree=evidence.clocks_agree,
        begun_ns=begun_ns,
        begins_later=any(_begins_later(log) for log in evidence.columns.values()),
    )


def _begins_later(log: LogColumns) -> bool:
    return len(log) > 0 and int(log.record_id[log.first_of_whole]) > 0


def rows_of(evidence: Evidence, states: Mapping[int, RankState], peaks: Mapping[int, int]) -> list[RankRow]:
    """As `overview_of`, without what is found."""
    return _rows(evidence, states, peaks, _known_waits(evidence), np.linspace(*_span(evidence), PARTS + 1))


def _rows(
    evidence: Evidence,
    states: Mapping[int, RankState],
    peaks: Mapping[int, int],
    known: Mapping[str, Waits],
    edges: Floats,
) -> list[RankRow]:
    waits = {rank: Wait() for rank in evidence.columns}
    if evidence.clocks_agree:
        _add_waits(evidence, known, waits, edges)
    ended_known = evidence.ended_wall_ns > 0
    return [
        replace(
            _row(rank, log, states[rank], waits[rank], peaks.get(rank, 0), edges, ended_known=ended_known),
            sensors=_sensors(evidence, rank),
        )
        for rank, log in sorted(evidence.columns.items())
        if rank in states
    ]


@dataclass(slots=True)
class Wait:
    awaited_ns: int = 0
    by_rank: Counter[int] = field(default_factory=Counter)
    waited_for: list[WaitedFor] = field(default_factory=list)
    known: int = 0
    unknown: int = 0

    @property
    def waited_ns(self) -> int:
        return self.by_rank.total()


def _known_waits(evidence: Evidence) -> dict[str, Waits]:
    return waits_by_group(evidence) if evidence.clocks_agree else {}


def _add_waits(evidence: Evidence, known: Mapping[str, Waits], waits: Mapping[int, Wait], edges: Floats) -> None:
    members: dict[int, list[_Member]] = {}
    for rank, unknown in unknown_waits(evidence, known).items():
        waits[rank].unknown = unknown
    for group in known.values():
        longer_ns, last = held_ns(evidence, group), group.last
        awaited_ns = np.zeros(len(group.ranks), dtype=np.int64)
        np.add.at(awaited_ns, last, median_of_others(longer_ns))
        for place, rank in enumerate(group.ranks):
            member = _Member(group=group, rows=group.rows[place], last=last, longer_ns=longer_ns[:, place])
            members.setdefault(rank, []).append(member)
            waits[rank].by_rank.update(member.sums_ns())
            waits[rank].awaited_ns += int(awaited_ns[place])
    for rank, of_rank in members.items():
        log = evidence.columns[rank]
        untimed = sum(int((wait_begins_ns(log, member.rows) == NOT_ENDED).sum()) for member in of_rank)
        waits[rank].known = sum(len(member.rows) for member in of_rank) - untimed
        waits[rank].unknown += untimed
        longest = waits[rank].by_rank.most_common(SHOWN_RANKS)
        waits[rank].waited_for = [_waited_for(log, last, waited_ns, of_rank, edges) for last, waited_ns in longest]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Member:
    """A rank in one of its groups: by collective the row of its log, the position of the rank that came last, and how
    much longer than that one it waited."""

    group: Waits
    rows: Ints
    last: Ints
    longer_ns: Ints

    def sums_ns(self) -> dict[int, int]:
        """By the rank that came last."""
        sums = np.zeros(len(self.group.ranks), dtype=np.int64)
        np.add.at(sums, self.last, self.longer_ns)
        return {self.group.ranks[place]: int(sums[place]) for place in np.flatnonzero(sums)}

    def after(self, last: int) -> tuple[Ints, Ints]:
        """Rows and waits of the collectives in which it waited for the rank `last`."""
        is_last = (self.last == self.group.ranks.index(last)) & (self.longer_ns > 0)
        return self.rows[is_last], self.longer_ns[is_last]


def _waited_for(log: LogColumns, last: int, waited_ns: int, members: Sequence[_Member], edges: Floats) -> WaitedFor:
    found = [member.after(last) for member in members if last in member.group.ranks]
    rows, longer_ns = (np.concatenate(parts) for parts in zip(*found, strict=True))
    begun = wait_begins_ns(log, rows) + log.wall_offset_ns
    longest = log.moment(int(rows[longer_ns.argmax()]))
    return WaitedFor(rank=last, waited_ns=waited_ns, longest=longest, when=shares(begun, begun + longer_ns, edges))


def _span(evidence: Evidence) -> tuple[int, int]:
    """Of the clock: from the first call of a whole part to the last end, or to that of the job where a call is open."""
    begun, ended = [], []
    for log in evidence.columns.values():
        if len(log):
            begun.append(whole_since_ns(log) + log.wall_offset_ns)
            ended.append(int(max(log.ended_ns.max(), log.begun_ns.max())) + log.wall_offset_ns)
            if (log.ended_ns == NOT_ENDED).any():
                ended.append(evidence.ended_wall_ns)
    return min(begun, default=0), max(ended, default=0)


def _row(
    rank: int, log: LogColumns, state: RankState, wait: Wait, peak_bytes: int, edges: Floats, *, ended_known: bool
) -> RankRow:
    last = len(log) - 1
    op = log.texts.get(int(log.op[last]), "") if len(log) else ""
    return RankRow(
        rank=rank,
        folder=state.name,
        state=state.state,
        moment=state.moment,
        collectives=state.collectives,
        last=op_name(op),
        at=line_name(source_of(log.frames(int(log.stack[last])))) if len(log) else "",
        waited_ns=wait.waited_ns,
        awaited_ns=wait.awaited_ns,
        peak_bytes=peak_bytes,
        inside=_inside(log, edges, ended_known=ended_known),
        waited_for=tuple(wait.waited_for),
        known_waits=wait.known,
        unknown_waits=wait.unknown,
    )


def _sensors(evidence: Evidence, rank: int) -> dict[str, float]:
    """Over the time of its log. Of a job of very many nodes nothing: the readings of all would not fit into memory."""
    if len(evidence.telemetry) > AT_ONCE:
        return {}
    telemetry, log = evidence.telemetry_of(rank), evidence.columns[rank]
    if telemetry is None or not len(log):
        return {}
    span = whole_since_ns(log), int(max(log.ended_ns.max(), log.begun_ns.max()))
    subject = rank_subject(evidence.folder_name(rank))
    found = {}
    for title, name in ((CPU, names.CPU_TIME), (QUEUE, names.RUN_QUEUE_WAIT)):
        series = telemetry.find(subject, name)
        if series is not None and len(series.times_ns) > 1 and span[1] > span[0]:
            begin, end = max(span[0], int(series.times_ns[0])), min(span[1], int(series.times_ns[-1]))
            if end > begin:
                found[title] = series.growth(begin, end) / (end - begin)
    devices = filter(None, telemetry.texts.get((subject, names.DEVICE), "").split(","))
    busy = [series.within(*span) for uuid in devices if (series := telemetry.find(f"gpu {uuid}", UTILIZATION))]
    read = np.concatenate(busy) if busy else np.zeros(0)
    return found | ({GPU: float(read.mean()) / 100} if len(read) else {})


def _inside(log: LogColumns, edges: Floats, *, ended_known: bool) -> Floats:
    """Two that overlap count once where one would fill the part. An open one fills the last part where it is not known
    when the job ended: it may have begun with the last time that is known."""
    is_open = log.ended_ns == NOT_ENDED
    begun = log.begun_ns + log.wall_offset_ns
    ended = np.where(is_open, edges[-1], log.ended_ns + log.wall_offset_ns)
    return shares(begun if ended_known else np.where(is_open, np.minimum(begun, edges[-2]), begun), ended, edges)
