"""Which steps of a run are iterations of one kind, so that one of them can stand for all."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Sequence
from dataclasses import dataclass
from statistics import median

from prismdbg.capsule.log.events import RankLog
from prismdbg.errors import UsageError


@dataclass(frozen=True, slots=True, kw_only=True)
class AlikeSteps:
    """`steps` issue the same on each rank, whatever lies between them. typical: of these, the one of median length.

    whole: how many steps there are from one mark to the next, also of other kinds.
    """

    steps: tuple[int, ...]
    typical: int
    median_ns: int
    whole: int


def steps_alike(logs: Sequence[RankLog], among: Collection[int] | None = None) -> AlikeSteps:
    """The most that are of one kind, adjacent or not. `among`: known already.

    UsageError where there is no such step.
    """
    marks = [{mark.step: mark.time_ns for mark in log.steps} for log in logs]
    calls = [_calls(log) for log in logs]
    whole = [step for step in sorted(marks[0]) if all({step, step + 1} <= set(each) for each in marks)]
    alike = _alike(whole, calls) if among is None else [step for step in whole if step in among]
    if not alike:
        raise UsageError(
            f"rank {logs[0].rank} has no complete step after the first, in which the program starts up",
            hint="give --steps 4 or more: the pace starts at the step after which all steps issue the same calls",
        )
    taken = {step: sum(each[step + 1] - each[step] for each in marks) for step in alike}
    ordered = sorted(alike, key=lambda step: (taken[step], step))
    middle = median(taken.values()) / len(logs)
    return AlikeSteps(
        steps=tuple(alike), typical=ordered[(len(ordered) - 1) // 2], median_ns=round(middle), whole=len(whole)
    )


def _alike(whole: Sequence[int], calls: Sequence[dict[int, Hashable]]) -> list[int]:
    """Of equally many, those that go on the longest: what comes first may be start-up."""
    kinds: dict[Hashable, list[int]] = {}
    for step in whole:
        kinds.setdefault(tuple(each.get(step) for each in calls), []).append(step)
    return max(kinds.values(), key=lambda steps: (len(steps), steps[-1]), default=[])


def _calls(log: RankLog) -> dict[int, Hashable]:
    """By step, what was issued in it, in order."""
    found: dict[int, list[Hashable]] = {}
    for call in sorted(log.collectives, key=lambda c: c.record_id):
        what = (call.op, call.group, call.root, call.tag, call.is_async, call.inputs, call.outputs)
        found.setdefault(call.moment.step, []).append(what)
    return {step: tuple(what) for step, what in found.items()}
