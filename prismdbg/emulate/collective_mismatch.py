"""Whether the ranks that ran would get through the job together, or hang: their calls are held against each other."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import zip_longest

from prismdbg.capsule.log.events import RankLog
from prismdbg.diagnosis.match import WRONG, match, match_message
from prismdbg.emulate.mesh_check import check_mesh, say_without_axis
from prismdbg.emulate.request import EmulateRequest
from prismdbg.errors import CapsuleError, MismatchError, UsageError
from prismdbg.job_graph.builder import GraphRequest, build_graph
from prismdbg.jobs.storage.run_folder import RunFolder, rank_of
from prismdbg.log.rank_log import read_log
from prismdbg.model import synthesis
from prismdbg.model.collective import Collective, Group, group_title
from prismdbg.model.ops import OBJECT_CALLS, OPS, Movement
from prismdbg.simulate.graph.mesh import Mesh

MOST_CALLS = 500_000  # about a kilobyte each
_HINT = "compare the two lines: a real job hangs there, or mixes up data"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """`problem`: the mesh is not the program's, or two ranks do not fit together; None where nothing was found.
    not_checked: why not all was. without_axis: groups by which the mesh could not be checked."""

    problem: UsageError | None = None
    not_checked: str = ""
    without_axis: str = ""


def fit_of(run: RunFolder, request: EmulateRequest) -> Fit:
    """Of the ranks that came to their end. Where every role ran, they are stitched together as for `graph build`."""
    logs = logs_of(run)
    if (wrong := mesh_problem(logs, request.mesh)) is not None:
        return Fit(problem=wrong)
    without_axis = say_without_axis(request.mesh, (group for log in logs.values() for group in log.groups.values()))
    return replace(_of_calls(run, request, logs), without_axis=without_axis)


def _of_calls(run: RunFolder, request: EmulateRequest, logs: Mapping[int, RankLog]) -> Fit:
    count = sum(len(log.collectives) for log in logs.values())
    not_checked = (
        "" if count <= MOST_CALLS else f"they issued {count:,} calls, of which at most {MOST_CALLS:,} are compared"
    )
    try:
        if not not_checked:
            check_calls(logs)
        if request.classes is not None or len(logs) == request.world:
            build_graph(GraphRequest(run=run.path))
    except MismatchError as error:
        return Fit(problem=with_cause(error, logs))
    except (UsageError, CapsuleError) as error:
        return Fit(not_checked=str(error))
    return Fit(not_checked=not_checked)


def logs_of(run: RunFolder) -> dict[int, RankLog]:
    return {rank_of(folder): read_log(folder) for folder in run.rank_folders()}


def mesh_problem(logs: Mapping[int, RankLog], mesh: Mesh) -> UsageError | None:
    try:
        for _, log in sorted(logs.items()):
            check_mesh(mesh, log.groups.values())
    except UsageError as error:
        return error
    return None


def with_cause(error: MismatchError, logs: Mapping[int, RankLog]) -> MismatchError:
    """Where ranks were given synthesized integers, that may be why they differ."""
    for _, log in sorted(logs.items()):
        for call in log.collectives:
            if call.can_be_made_again and call.made != synthesis.NOTHING and _carries_integers(call):
                what = _said(call, group_title(log.groups, call.group))
                cause = f"the integers that {what} received are synthesized: the ranks may differ because of them"
                return MismatchError(str(error), hint=f"{error.hint}. Or {cause}")
    return error


def _carries_integers(call: Collective) -> bool:
    is_object = any(frame.name in OBJECT_CALLS for frame in call.frames)
    return not is_object and any(t.dtype.startswith(("int", "uint")) for t in call.outputs)


def check_calls(logs: Mapping[int, RankLog]) -> None:
    """Of any ranks of one job, over all their steps. MismatchError for the first call that another one lacks, or that
    is another."""
    groups = {name: group for _, log in sorted(logs.items()) for name, group in log.groups.items()}
    for name, group in groups.items():
        members = [rank for rank in group.ranks if rank in logs]
        if len(members) > 1:
            calls = {rank: [c for c in logs[rank].collectives if c.group == name] for rank in members}
            _check_collectives(group.title, {rank: [c for c in own if not c.is_p2p] for rank, own in calls.items()})
            _check_messages(group, {rank: [c for c in own if c.is_p2p] for rank, own in calls.items()})


def _check_collectives(group: str, calls: Mapping[int, list[Collective]]) -> None:
    first, *others = calls
    for rank in others:
        for one, other in zip_longest(calls[first], calls[rank]):
            _check_pair(group, first, one, rank, other)


def _check_pair(group: str, first: int, one: Collective | None, rank: int, other: Collective | None) -> None:
    if one is None or other is None:
        there, lacks, call = (first, rank, one) if one is not None else (rank, first, other)
        assert call is not None
        raise MismatchError(
            f"rank {there} issues {_said(call, group)}, which rank {lacks} never issues: it ended before that",
            hint=_HINT,
        )
    found = match(one, other)
    if found.state in WRONG and not _carry_objects(one, other):
        raise MismatchError(
            f"rank {first} issues {_said(one, group)} where rank {rank} issues {_said(other, group)}: "
            f"{found.difference}",
            hint=_HINT,
        )


def _carry_objects(one: Collective, other: Collective) -> bool:
    """Each as many bytes as it knows to be needed: the sizes of its peers' objects are synthesized."""
    return one.op == other.op and all(any(f.name in OBJECT_CALLS for f in call.frames) for call in (one, other))


def _check_messages(group: Group, calls: Mapping[int, list[Collective]]) -> None:
    """Those that name both ends, in the order in which they are sent."""
    sent = _by_way(group, calls, Movement.SEND)
    received = _by_way(group, calls, Movement.RECEIVE)
    open_ended = {rank for rank, own in calls.items() if any(c.op == "recv_any_source_" for c in own)}
    for way in sorted({*sent, *received}):
        source, target, _ = way
        if source not in calls or target not in calls or target in open_ended:
            continue
        for send, receive in zip_longest(sent[way], received[way]):
            if send is None or receive is None:
                here, there, call = (source, target, send) if send is not None else (target, source, receive)
                verb = "receives" if send is not None else "sends"
                raise MismatchError(
                    f"rank {here} issues {_said(call, group.title)}, which rank {there} never {verb}", hint=_HINT
                )
            found = match_message(send, receive)
            if found.state in WRONG:
                raise MismatchError(
                    f"rank {source} issues {_said(send, group.title)} where rank {target} issues "
                    f"{_said(receive, group.title)}: {found.difference}",
                    hint=_HINT,
                )


Ways = Mapping[tuple[int, int, int], list[Collective]]


def _by_way(group: Group, calls: Mapping[int, list[Collective]], movement: Movement) -> Ways:
    """By sender, receiver and tag."""
    found: dict[tuple[int, int, int], list[Collective]] = defaultdict(list)
    for rank, peer, call in _messages(group, calls, movement):
        ends = (rank, peer) if movement is Movement.SEND else (peer, rank)
        found[*ends, call.tag].append(call)
    return found


def _messages(
    group: Group, calls: Mapping[int, list[Collective]], movement: Movement
) -> Iterator[tuple[int, int, Collective]]:
    for rank, own in calls.items():
        for call in own:
            if OPS[call.op].movement is movement and 0 <= call.root < group.size:
                yield rank, group.ranks[call.root], call


def _said(call: Collective, group: str) -> str:
    at = f" at {call.source}" if call.source is not None else ""
    return f"{call.name} ({call.moment}, group {group}){at}"
