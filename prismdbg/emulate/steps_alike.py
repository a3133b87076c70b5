"""Which steps of a run are iterations of one kind, so that one of them can stand for all."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from statistics import median

from prismdbg.capsule.log_events import RankLog
from prismdbg.errors import UsageError


@dataclass(frozen=True, slots=True, kw_only=True)
class AlikeSteps:
    """`first` to `last` issue the same on each rank. typical: of these, the one of median length."""

    first: int
    last: int
    typical: int
    median_ns: int


def steps_alike(logs: Sequence[RankLog], between: tuple[int, int] | None = None) -> AlikeSteps:
    """The most that follow each other, from one mark to the next. `between`: known already.

    UsageError where there is no such step.
    """
    marks = [{mark.step: mark.time_ns for mark in log.steps} for log in logs]
    calls = [_calls(log) for log in logs]
    whole = [step for step in sorted(marks[0]) if all({step, step + 1} <= set(each) for each in marks)]
    alike = _alike(whole, calls) if between is None else [s for s in whole if between[0] <= s <= between[1]]
    if not alike:
        raise UsageError(
            f"rank {logs[0].rank} has no complete step after the first, in which the program starts up",
            hint="give --steps 4 or more: the pace starts at the step after which all steps issue the same calls",
        )
    taken = {step: sum(each[step + 1] - each[step] for each in marks) for step in alike}
    ordered = sorted(alike, key=lambda step: (taken[step], step))
    middle = median(taken.values()) / len(logs)
    return AlikeSteps(first=alike[0], last=alike[-1], typical=ordered[(len(ordered) - 1) // 2], median_ns=round(middle))


def _alike(whole: Sequence[int], calls: Sequence[dict[int, Hashable]]) -> list[int]:
    """The longest row of steps that issue the same, the last of equals: what comes first may be start-up."""
    rows: list[list[int]] = []
    for step in whole:
        if rows and rows[-1][-1] == step - 1 and all(each.get(step) == each.get(step - 1) for each in calls):
            rows[-1].append(step)
        else:
            rows.append([step])
    return max(reversed(rows), key=len, default=[])


def _calls(log: RankLog) -> dict[int, Hashable]:
    """By step, what was issued in it, in order."""
    found: dict[int, list[Hashable]] = {}
    for call in sorted(log.collectives, key=lambda c: c.record_id):
        what = (call.op, call.group, call.root, call.tag, call.is_async, call.inputs, call.outputs)
        found.setdefault(call.moment.step, []).append(what)
    return {step: tuple(what) for step, what in found.items()}
