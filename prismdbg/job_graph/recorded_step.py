"""One step in a rank's log: which steps are whole, where one begins and ends, and its calls."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from prismdbg.capsule.log.events import RankLog
from prismdbg.capsule.memory_reader import is_trace
from prismdbg.errors import NotLogged
from prismdbg.log.columns import LogColumns
from prismdbg.log.rank_log import columns_of, rank_log
from prismdbg.memory.trace import open_trace
from prismdbg.memory.traced_step import Border, TracedStep, traced_step
from prismdbg.model.collective import Collective
from prismdbg.model.moment import Moment
from prismdbg.rank_graph.slice import GraphSlice, build_slice

_LAST_COLLECTIVE = 10**17


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedStep:
    """Times are those of the log. It goes from one step's mark to the next; where a mark is missing (the first step has
    none) from the first call to the first call of the next step, `end_ns` 0 where there is none."""

    step: int
    graph: GraphSlice
    begin_ns: int
    end_ns: int

    @property
    def from_ns(self) -> int:
        """As times in the slice count."""
        return self.begin_ns - self.graph.begins_ns

    @property
    def until_ns(self) -> int:
        """As times in the slice count; 0 where the end is not known."""
        return max(self.end_ns - self.graph.begins_ns, 0)


def recorded_step(log: RankLog, step: int) -> RecordedStep | None:
    """None where the rank issued nothing in it, unless it went through it from mark to mark: then it has no calls."""
    graph = build_slice(log, Moment(step), Moment(step, _LAST_COLLECTIVE))
    marks = {mark.step: mark.time_ns for mark in log.steps}
    if not graph.nodes:
        return _without_calls(graph, marks, step)
    if step in marks and step + 1 in marks:
        return RecordedStep(step=step, graph=graph, begin_ns=marks[step], end_ns=marks[step + 1])
    following = min(
        (c.time_created_ns for c in log.collectives if c.moment.step > step), default=marks.get(step + 1, 0)
    )
    return RecordedStep(step=step, graph=graph, begin_ns=graph.begins_ns, end_ns=following)


def _without_calls(graph: GraphSlice, marks: Mapping[int, int], step: int) -> RecordedStep | None:
    """Of the first step, which has no mark, the begin is not known."""
    if step + 1 not in marks or (step and step not in marks):
        return None
    end_ns = marks[step + 1]
    begin_ns = marks.get(step, end_ns)
    return RecordedStep(step=step, graph=replace(graph, begins_ns=begin_ns), begin_ns=begin_ns, end_ns=end_ns)


def last_whole_step(logs: Iterable[RankLog]) -> int:
    """Of the steps that every rank ended; the only one there is, where none did."""
    return max(min(steps_begun(log) for log in logs) - 1, 0)


def steps_begun(log: RankLog) -> int:
    marks = max((mark.step for mark in log.steps), default=0)
    return max(marks, int(columns_of(log).step.max(initial=0)))


def check_computed(log: RankLog, step: int) -> None:
    """NotLogged where a call of a recorded step is on a device: it is issued and left, so that the log does not show
    what was computed between two calls."""
    for call in log.collectives:
        if call.moment.step == step and call.is_on_device:
            device = (call.inputs or call.outputs)[0].device
            raise NotLogged(
                f"rank {log.rank} ran step {step} on {device}: the log does not show how long it computed",
                hint="build the graph of an emulated job; export --format perfetto shows the times of this one",
            )


def doubts_of_devices(logs: Mapping[int, RankLog], step: int | None) -> tuple[str, ...]:
    """Of an emulated job, where calls of that step, or of any for None, are on a device."""
    found = [rank for rank, log in sorted(logs.items()) if _is_on_device(columns_of(log), step)]
    if not found:
        return ()
    more = f" and {len(found) - 1} more" if len(found) > 1 else ""
    return (
        f"how long ranks computed: tensors of rank {found[0]}{more} were on a device, and a log has only the time that "
        "the host took to issue the work",
    )


def _is_on_device(log: LogColumns, step: int | None) -> bool:
    return bool((log.on_device if step is None else log.on_device & (log.step == step)).any())


def near(log: RankLog, steps: range) -> RankLog:
    """With the collectives of these steps and of those around them, the last one, and those that failed: of a long log
    the others would take long to decode."""
    columns = columns_of(log)
    wide = around(steps)
    wanted = (columns.step >= wide.start) & (columns.step < wide.stop) | columns.failed
    wanted[-1:] = True
    return rank_log(columns.only(np.flatnonzero(wanted)))


def around(steps: range) -> range:
    """With the step before and the one after."""
    return range(steps.start - 1, steps.stop + 1)


def borders_of(log: RankLog, step: int) -> dict[int, Border]:
    """Of each of its calls, and 0 for the begin, on the log's own clock."""
    found = {c.moment.collective: _border(c) for c in log.collectives if c.moment.step == step}
    begins = [mark.time_ns for mark in log.steps if mark.step == step]
    return found | ({0: Border(issued_ns=begins[0], goes_on_ns=begins[0])} if begins else {})


def traced_in(folder: Path, log: RankLog, recorded: RecordedStep) -> TracedStep | None:
    """What the trace in `folder`, made while the log was, tells of the step; None where there is none, or nothing."""
    if not is_trace(folder):
        return None
    borders = borders_of(log, recorded.step)
    return traced_step(open_trace(folder), recorded.step, borders, recorded.end_ns or None)


def _border(call: Collective) -> Border:
    holds = not call.is_p2p and not call.is_async and call.time_completed_ns is not None
    return Border(
        issued_ns=call.time_created_ns,
        goes_on_ns=(call.time_completed_ns or 0) if holds else call.time_created_ns,
    )
