"""The steps of which a rank's log has only a summary: no graph can be made of one, but they say what is usual."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from prismdbg.capsule.log.events import RankLog
from prismdbg.errors import UsageError
from prismdbg.job_graph.recorded_step import recorded_step
from prismdbg.log.rank_log import columns_of
from prismdbg.log.segment import Ints
from prismdbg.log.step_rows import Rows, by_step
from prismdbg.model.durations import four_digits
from prismdbg.simulate.graph.mesh import Mesh

FEW = 20  # steps do not say what is usual
_PERCENT = (5, 95)
_TENTH = 0.1  # of the median: in a regular job, one step in ten is outside of these percentiles by next to nothing


def check_kept(mesh: Mesh, logs: Mapping[int, RankLog], step: int) -> None:
    """UsageError where a rank's log no longer has every call of the step."""
    for rank, log in sorted(logs.items()):
        if step < (first := first_whole_step(log)):
            is_there = first <= int(columns_of(log).step.max(initial=-1))
            has = f"has the calls from step {first} on" if is_there else "has every call of no step"
            choose = f"choose --step {first} or a later one; " if is_there else ""
            raise UsageError(
                f"step {step} is no longer whole in the log of {mesh.say(rank)}, which {has}; {_left_of(log, step)}",
                hint=f"{choose}`record --log-bytes` sets how much of a log is kept",
            )


def first_whole_step(log: RankLog) -> int:
    """From which on the log has every call: 0 where nothing was dropped."""
    columns = columns_of(log).without_single_ones()
    if not len(columns):
        return columns_of(log).last_moment.step + 1 if columns_of(log).issued else 0
    first = columns.moment(0)
    if not int(columns.record_id[0]):
        return 0
    return first.step if first.collective == 1 else first.step + 1


def unusual(mesh: Mesh, logs: Mapping[int, RankLog], step: int) -> tuple[str, ...]:
    """What a graph of this step does not say of the job: that it took longer or less long than nearly all of the steps
    that the summaries have. The rank that differs most speaks for all."""
    found = []
    for rank, log in logs.items():
        usual = _durations(columns_of(log).summary)
        recorded = recorded_step(log, step) if len(usual) >= FEW else None
        if recorded is None or not recorded.end_ns:
            continue
        took, (low, high) = recorded.end_ns - recorded.begin_ns, np.percentile(usual, _PERCENT)
        apart = float(took / max(np.median(usual), 1.0)) - 1
        if abs(apart) > _TENTH and not low <= took <= high:
            text = (
                f"that other steps take as long: step {step} of {mesh.say(rank)} took {four_digits(took)}, 90 % "
                f"of {len(usual):,} steps before took {four_digits(int(low))} to {four_digits(int(high))}"
            )
            found.append((abs(apart), text))
    return (max(found)[1],) if found else ()


def _left_of(log: RankLog, step: int) -> str:
    rows = by_step(columns_of(log).summary)
    rows = rows[(rows["first_step"] <= step) & (rows["last_step"] >= step)]
    if not len(rows):
        return "nothing else is left of it"
    row, first, last = rows[0], int(rows[0]["first_step"]), int(rows[0]["last_step"])
    took_ns = int(row["ended_ns"]) - int(row["begun_ns"])
    whole_from = columns_of(log).without_single_ones()
    is_cut = bool(len(whole_from)) and whole_from.moment(0).step == step
    of = (
        f"a summary of steps {first} to {last}"
        if first != last
        else "of its begin a summary"
        if is_cut
        else "a summary"
    )
    return f"{of} is left: {int(row['collectives']):,} collectives" + (
        f" in {four_digits(took_ns)}" if took_ns > 0 else ""
    )


def _durations(summary: Rows) -> Ints:
    """From the first call of a step to the first of the next one, in ns, where a summary has a row of each."""
    rows = by_step(summary)
    rows = rows[rows["first_step"] == rows["last_step"]]
    following = np.diff(rows["first_step"].astype(np.int64)) == 1
    lengths: Ints = np.diff(rows["begun_ns"])[following]
    return lengths
