"""Calls that were traced in a window of a job, rank by rank, as the logs of that job.

A trace shows some steps out of the middle of a job. Where it does not number a group's calls, the first call in the
window of each rank is taken for the same call. What only some members of a group have at either end of their windows is
left out: it says where a window ended, not where a rank was.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from prismdbg.capsule.log.events import RankLog, StepMark
from prismdbg.importers.group_names import own_names
from prismdbg.importers.imported_job import ImportedJob
from prismdbg.model.collective import Collective, Frame, Group, Identity, State, TensorMeta
from prismdbg.model.moment import Moment
from prismdbg.model.ops import OPS
from prismdbg.model.plurals import counted

_FEW = 8
_FEW_UNKNOWN = 0.1  # of the calls: with more of them waits are not compared
_NOT_TOLD = "not told"


@dataclass(slots=True, kw_only=True)
class TracedCall:
    """One call of an operator of c10d. `group`: empty where the trace does not say it. seq: in its group, None where
    that is not told. root: of the group, or the peer; -1 for none. `left_ns`: when the call returned; `ended_ns`: when
    its transfer was over, None where that is not told. function_id: torch's number of the call, the same in all traces
    of one run."""

    op: str
    group: str
    seq: int | None
    root: int
    tag: int
    is_async: bool
    inputs: tuple[TensorMeta, ...]
    outputs: tuple[TensorMeta, ...]
    issued_ns: int
    left_ns: int
    ended_ns: int | None
    thread: int
    frames: tuple[Frame, ...] = ()
    function_id: int | None = None

    @property
    def is_p2p(self) -> bool:
        return self.op in OPS and OPS[self.op].is_p2p


@dataclass(slots=True, kw_only=True)
class TracedRank:
    """`calls` in the order of issue. `groups` by name, without members where these are not told. wall_offset_ns: None
    where times are only an order. `gaps`: sentences on this rank's file."""

    rank: int
    calls: list[TracedCall]
    groups: dict[str, Group]
    steps: list[StepMark] = field(default_factory=list)
    wall_offset_ns: int | None = None
    host: str = ""
    pid: int = 0
    world_size: int = 0


def join(ranks: Sequence[TracedRank], damaged: Mapping[int, str]) -> ImportedJob:
    """The logs of all ranks together."""
    gaps: list[str] = []
    _give_own_names(ranks)
    groups = _merged(ranks)
    gaps += _name_groups(ranks, groups)
    numbered = {traced.rank: _numbered(traced.calls) for traced in ranks}
    kept = _in_all_windows(numbered, groups)
    if cut := sum(map(len, numbered.values())) - sum(map(len, kept.values())):
        gaps.append(f"{counted(cut, 'call')} at the ends of the windows, which only some ranks have, left out")
    if any(not call.is_p2p and call.seq is None for traced in ranks for call in traced.calls):
        gaps.append("calls are not numbered: the first call of each rank in a group is taken for the same one")
    logs = {traced.rank: _log(traced, kept[traced.rank], groups) for traced in ranks}
    unknown = sum(call.ended_ns is None for calls in kept.values() for call, _ in calls)
    if unknown and any(traced.wall_offset_ns is not None for traced in ranks):
        gaps.append(f"when {counted(unknown, 'call')} ended is unknown: they end with the call itself here")
    is_timed = all(traced.wall_offset_ns is not None and traced.host for traced in ranks)
    is_timed &= unknown <= _FEW_UNKNOWN * sum(map(len, kept.values()))
    return ImportedJob(
        logs=logs,
        damaged=damaged,
        gaps=tuple(gaps),
        world_size=max((traced.world_size for traced in ranks), default=0),
        hosts={traced.rank: traced.host for traced in ranks} if is_timed else {},
    )


def _give_own_names(ranks: Sequence[TracedRank]) -> None:
    listed = {traced.rank: {name: group.ranks for name, group in traced.groups.items()} for traced in ranks}
    names = own_names(listed)
    for traced in (traced for traced in ranks if names[traced.rank]):
        own = names[traced.rank]
        groups = (replace(group, name=own.get(name, name)) for name, group in traced.groups.items())
        traced.groups = {group.name: group for group in groups}
        for call in traced.calls:
            call.group = own.get(call.group, call.group)


def _merged(ranks: Iterable[TracedRank]) -> dict[str, Group]:
    """By name, with members where any rank's trace lists them."""
    found: dict[str, Group] = {}
    for traced in ranks:
        for name, group in traced.groups.items():
            if name not in found or (group.ranks and not found[name].ranks):
                found[name] = group
    return found


def _name_groups(ranks: Sequence[TracedRank], groups: dict[str, Group]) -> Iterator[str]:
    """Gives each call without a group one: the only one that its rank has, or one that says that it is not known. Of
    the latter all members are known, if they are those of each group that it may be."""
    unknown = []
    nameless = [traced for traced in ranks if not all(call.group for call in traced.calls)]
    of_rank = _groups_of({traced.rank for traced in nameless}, groups)
    are_told = all(group.ranks for group in groups.values())
    anyones = [group.name for group in groups.values() if not group.ranks]
    for traced in nameless:
        own = of_rank[traced.rank]
        names = [*(group.name for group in own), *anyones]
        name = names[0] if len(names) == 1 else ""
        if not name:
            unknown.append(traced.rank)
            made = _unknown_group(traced.rank, {group.ranks for group in own} if are_told else set())
            name = groups.setdefault(made.name, made).name
        for call in traced.calls:
            call.group = call.group or name
    if unknown:
        few = ", ".join(map(str, unknown[:_FEW]))
        yield (
            f"the trace of rank {few} does not say in which of several groups calls were made: they are compared only "
            "where all groups have the same members"
        )


def _groups_of(ranks: Container[int], groups: Mapping[str, Group]) -> dict[int, list[Group]]:
    """Those of which each rank is a member."""
    found: defaultdict[int, list[Group]] = defaultdict(list)
    for group in groups.values():
        for rank in group.ranks:
            if rank in ranks:
                found[rank].append(group)
    return found


def _unknown_group(rank: int, members: set[tuple[int, ...]]) -> Group:
    """members: of the groups that it may be, where all are told."""
    if len(members) == 1:
        return Group(name=_NOT_TOLD, ranks=next(iter(members)), desc="")
    return Group(name=f"{_NOT_TOLD} (rank {rank})", ranks=(rank,), desc="")


def _numbered(calls: Iterable[TracedCall]) -> list[tuple[TracedCall, Identity]]:
    count: Counter[tuple[object, ...]] = Counter()
    found = []
    for call in calls:
        key = (call.group, call.op, call.root, call.tag) if call.is_p2p else (call.group,)
        nth = count[key]
        count[key] += 1
        if call.is_p2p:
            found.append((call, Identity(call.group, nth, call.op, call.root, call.tag)))
        else:
            found.append((call, Identity(call.group, call.seq if call.seq is not None else nth)))
    return found


_Numbered = Mapping[int, list[tuple[TracedCall, Identity]]]


def _in_all_windows(numbered: _Numbered, groups: Mapping[str, Group]) -> _Numbered:
    """Without what lies before the first or after the last call that all traced members of its group have. A rank that
    does not say its groups may have made any call."""
    silent = {rank for rank, calls in numbered.items() if any(call.group.startswith(_NOT_TOLD) for call, _ in calls)}
    first: dict[str, int] = {}
    last: dict[str, int] = {}
    windows = {rank: _windows(calls) for rank, calls in numbered.items()}
    for name, group in groups.items():
        of_members = [
            windows[rank].get(name)
            for rank in group.ranks
            if rank in numbered and (rank not in silent or name.startswith(_NOT_TOLD))
        ]
        if of_members:
            first[name] = max((window[0] for window in of_members if window is not None), default=0)
            last[name] = min(-1 if window is None else window[1] for window in of_members)
    return {
        rank: [
            (call, identity)
            for call, identity in calls
            if call.is_p2p or first.get(call.group, 0) <= identity.seq <= last.get(call.group, identity.seq)
        ]
        for rank, calls in numbered.items()
    }


def _windows(calls: Iterable[tuple[TracedCall, Identity]]) -> dict[str, tuple[int, int]]:
    """By group the first and the last number of a rank's calls."""
    found: dict[str, tuple[int, int]] = {}
    for call, identity in calls:
        if not call.is_p2p:
            least, most = found.get(call.group, (identity.seq, identity.seq))
            found[call.group] = min(least, identity.seq), max(most, identity.seq)
    return found


def _log(traced: TracedRank, calls: list[tuple[TracedCall, Identity]], groups: dict[str, Group]) -> RankLog:
    begins = [mark.time_ns for mark in traced.steps]
    in_step: Counter[int] = Counter()
    collectives = []
    for record_id, (call, identity) in enumerate(calls):
        at = bisect_right(begins, call.issued_ns)
        step = traced.steps[at - 1].step if at else max(traced.steps[0].step - 1, 0) if traced.steps else 0
        in_step[step] += 1
        collectives.append(_collective(record_id, Moment(step, in_step[step]), call, identity))
    return RankLog(
        rank=traced.rank,
        pid=traced.pid,
        wall_offset_ns=traced.wall_offset_ns or 0,
        collectives=collectives,
        steps=list(traced.steps),
        groups=groups,
    )


def _collective(record_id: int, moment: Moment, call: TracedCall, identity: Identity) -> Collective:
    return Collective(
        record_id=record_id,
        moment=moment,
        identity=identity,
        op=call.op,
        group=call.group,
        is_p2p=call.is_p2p,
        is_async=call.is_async,
        root=call.root,
        tag=call.tag,
        reduce_op="",
        timeout_ms=0,
        inputs=call.inputs,
        outputs=call.outputs,
        fingerprint=None,
        sent_nonfinite=False,
        time_created_ns=call.issued_ns,
        thread_id=call.thread,
        frames=call.frames,
        state=State.COMPLETED,
        time_completed_ns=call.left_ns if call.ended_ns is None else max(call.ended_ns, call.issued_ns),
    )
