"""A rank for which the others waited in most steps that are only summarized: what became slow long ago still shows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prismdbg.diagnosis.evidence import Evidence, parks
from prismdbg.diagnosis.lateness.stragglers import (
    FEWEST_COLLECTIVES,
    LEAST_LATENESS_NS,
    LEAST_OF_THE_TIME,
    LEAST_SHARE,
    are_on_device,
)
from prismdbg.diagnosis.verdict import Certainty, Verdict
from prismdbg.log.columns import LogColumns
from prismdbg.log.segment import Ints
from prismdbg.log.step_rows import Rows, by_step
from prismdbg.model.durations import brief

_MAY_NOT_MEET = "the ranks are in different groups or send messages: the others may have waited for another rank"


@dataclass(frozen=True, slots=True, kw_only=True)
class EarlierStraggler(Verdict):
    """Waited least in the rows of the summaries, each of one step or of several, that cover `times` of `of` steps, from
    step `first` to step `last`; the others waited longer by `lateness_ns` in the middle, which is `share` of the time.
    all_meet: it was that rank for which they waited, and no other one."""

    first: int
    last: int
    times: int
    of: int
    lateness_ns: int
    share: float
    all_meet: bool = True

    kind = "earlier_straggler"

    @property
    def text(self) -> str:
        rank, where = self.ranks[0], f"in most steps from {self.first} to {self.last}"
        much = f"by {brief(self.lateness_ns)} a step: {self.share:.0%} of the time"
        if self.all_meet:
            return f"the others waited for rank {rank} {where}, {much}"
        return f"rank {rank} waited least {where}, {much}"

    @property
    def lines(self) -> tuple[str, ...]:
        steps = f"{self.times:,} of its {self.of:,} steps"
        rows = f"from the summary: rank {self.ranks[0]} waited least in rows that cover {steps}"
        return (rows,) if self.all_meet else (rows, _MAY_NOT_MEET)

    def details(self) -> dict[str, Any]:
        names = ("first", "last", "times", "of", "lateness_ns", "share", "all_meet")
        return {name: getattr(self, name) for name in names}


def find_earlier_waits(evidence: Evidence) -> list[Verdict]:
    """Where all ranks have summaries: one rank at most, and only where it was the same in most steps."""
    ranks = sorted(evidence.columns)
    on_device = any(_has_device(log) for log in evidence.columns.values())  # then a summary has no waits
    if len(ranks) < 2 or len(ranks) < evidence.known_world_size or on_device:
        return []
    rows = _common([_rows_of(evidence.columns[rank]) for rank in ranks], evidence.parked_steps())
    if len(rows[0]) < FEWEST_COLLECTIVES:
        return []
    waited = np.stack([each["waited_ns"].astype(np.int64) for each in rows], axis=1)
    steps = _steps(rows[0])
    times_least = np.bincount(waited.argmin(axis=1), weights=steps, minlength=len(ranks))
    place = int(times_least.argmax())
    late = np.median(np.delete(waited, place, axis=1), axis=1) - waited[:, place]
    lateness_ns = round(_median(late / steps, steps))
    lasted = int((rows[place]["ended_ns"] - rows[place]["begun_ns"]).clip(min=0).sum())
    share = float(late.clip(min=0).sum()) / max(lasted, 1)
    is_often = times_least[place] >= LEAST_SHARE * steps.sum()
    if not is_often or lateness_ns < LEAST_LATENESS_NS or share < LEAST_OF_THE_TIME:
        return []
    return [
        EarlierStraggler(
            certainty=Certainty.HINT,
            began_wall_ns=0,
            ranks=(ranks[place],),
            first=int(rows[place]["first_step"].min()),
            last=int(rows[place]["last_step"].max()),
            times=int(times_least[place]),
            of=int(steps.sum()),
            lateness_ns=lateness_ns,
            share=min(share, 1.0),
            all_meet=_all_meet(evidence),
        )
    ]


def _has_device(log: LogColumns) -> bool:
    return bool(are_on_device(log, np.flatnonzero(log.on_device)).any())


def _all_meet(evidence: Evidence) -> bool:
    """Whether whoever waited did so for all the others, as far as the logs say: a summary does not say in which group,
    or for which message."""
    messages = any(log.is_p2p.any() for log in evidence.columns.values())
    return not messages and are_in_one(
        evidence.columns, (group.ranks for log in evidence.columns.values() for group in log.groups.values())
    )


def are_in_one(ranks: Iterable[int], groups: Iterable[Sequence[int]]) -> bool:
    """Whether all ranks are in each of the groups in which one can wait for another."""
    members = [frozenset(group) for group in {tuple(group) for group in groups} if len(group) > 1]
    return bool(members) and all(group.issuperset(ranks) for group in members)


def _rows_of(log: LogColumns) -> Rows:
    """In the order of their steps. The time in which the rank was held for an image counts as its own wait, in the row
    of the call that it held up: the others waited for that, and a row of many steps nearly always has some."""
    rows = by_step(log.summary)
    ends = np.maximum.accumulate(rows["ended_ns"])
    for since_ns, until_ns in parks(log):
        if until_ns is not None and 0 <= since_ns < until_ns <= ends.max(initial=0):
            np.add.at(rows["waited_ns"], np.searchsorted(ends, until_ns), until_ns - since_ns)
    return rows


def _steps(rows: Rows) -> Ints:
    """How many each row is of: the last steps have one each, older ones may have one for hundreds."""
    steps: Ints = rows["last_step"].astype(np.int64) - rows["first_step"] + 1
    return steps


def _median(values: NDArray[np.float64], weights: Ints) -> float:
    order = np.argsort(values)
    upto = np.cumsum(weights[order])
    return float(values[order][np.searchsorted(upto, upto[-1] / 2)])


def _common(rows: list[Rows], parked: frozenset[int]) -> list[Rows]:
    """Of the steps that all of them have, in their order; without those in which a rank was parked all the time."""
    keys = [_key(each) for each in rows]
    common = keys[0]
    for key in keys[1:]:
        common = np.intersect1d(common, key)
    out = _parked(rows[0], keys[0], np.array(sorted(parked), dtype=np.int64))
    common = np.setdiff1d(common, out)
    return [each[np.searchsorted(key, common)] for each, key in zip(rows, keys, strict=True)]


def _key(rows: Rows) -> Ints:
    """In order, for the rows of one rank are."""
    key: Ints = rows["first_step"].astype(np.int64) << 32 | rows["last_step"]
    return key


def _parked(rows: Rows, key: Ints, parked: NDArray[np.int64]) -> Ints:
    inside = np.searchsorted(parked, rows["last_step"], side="right") - np.searchsorted(parked, rows["first_step"])
    whole: Ints = key[inside == _steps(rows)]
    return whole
