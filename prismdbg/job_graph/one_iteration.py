"""Another tool's files that mark no steps, as one iteration: the calls that all ranks completed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace

from prismdbg.capsule.log.events import RankLog, StepMark
from prismdbg.capsule.log.format import StepSource
from prismdbg.errors import UsageError
from prismdbg.job_graph.as_recorded import Key, meeting, peer_number
from prismdbg.job_graph.recorded_step import steps_begun
from prismdbg.model.collective import Collective, State
from prismdbg.model.plurals import counted


def one_iteration(logs: Mapping[int, RankLog]) -> tuple[dict[int, RankLog], tuple[str, ...]]:
    """The logs with step 0 alone, which ends with its last complete call, and sentences on that. Logs with steps are
    returned as they are. `UsageError` where a rank completed nothing that the others completed, too."""
    if any(log.steps for log in logs.values()):
        return dict(logs), ()
    kept = _completed_by_all(logs)
    if (empty := next((rank for rank, calls in kept.items() if not calls), None)) is not None:
        raise UsageError(
            f"rank {empty} has no call that all its members completed: a graph needs one",
            hint="give the files of all ranks of one job, written at the same time",
        )
    cut = sum(len(log.collectives) - len(kept[rank]) for rank, log in logs.items())
    said = ["the files mark no steps: all calls that every rank completed are one iteration here"]
    if cut:
        said.append(f"{counted(cut, 'call')}, which not all members completed or have in their files, left out")
    return {rank: _ended(log, kept[rank]) for rank, log in logs.items()}, tuple(said)


def check_told(logs: Mapping[int, RankLog], step: int) -> None:
    """UsageError where a rank's file ends before the step does."""
    for rank, log in sorted(logs.items()):
        if step >= (begun := steps_begun(log)):
            raise UsageError(
                f"step {step} is not complete in the file of rank {rank}",
                hint=f"choose an earlier one: its last complete step is {begun - 1}"
                if begun
                else "leave out this file: it marks no step",
            )


def _completed_by_all(logs: Mapping[int, RankLog]) -> dict[int, list[Collective]]:
    """Of those members whose files are there."""
    completed = {rank: [c for c in log.collectives if c.state is State.COMPLETED] for rank, log in logs.items()}
    done: dict[Key, set[int]] = defaultdict(set)
    for rank, calls in completed.items():
        for call in calls:
            done[meeting(rank, call, _ranks(logs[rank], call))].add(rank)

    def is_common(rank: int, call: Collective) -> bool:
        ranks = _ranks(logs[rank], call)
        return _members(rank, call, ranks) & logs.keys() <= done[meeting(rank, call, ranks)]

    return {rank: [call for call in calls if is_common(rank, call)] for rank, calls in completed.items()}


def _ranks(log: RankLog, call: Collective) -> tuple[int, ...]:
    return log.groups[call.group].ranks if call.group in log.groups else ()


def _members(rank: int, call: Collective, ranks: tuple[int, ...]) -> set[int]:
    """Of a message its sender and its receiver."""
    if not call.is_p2p:
        return set(ranks)
    peer = peer_number(call)
    return {rank, ranks[peer]} if 0 <= peer < len(ranks) else {rank}


def _ended(log: RankLog, calls: list[Collective]) -> RankLog:
    end_ns = max(call.time_completed_ns or call.time_created_ns for call in calls)
    return replace(log, collectives=calls, steps=[StepMark(1, end_ns, StepSource.MANUAL)])
