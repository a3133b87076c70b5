"""What the iterations of a paced rank were made of, from its log and the schedule that it was paced by."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import median

from prismdbg.capsule.log.events import RankLog
from prismdbg.job_graph.recorded_step import RecordedStep, recorded_step
from prismdbg.model.schedule import MAIN, Row, Schedule
from prismdbg.rank_graph.node import Node
from prismdbg.rank_graph.slice import is_on_stream, streamed_groups
from prismdbg.simulate.report.rank_parts import RankParts


def emulated_parts(log: RankLog, schedule: Schedule) -> RankParts | None:
    """The median of each part over the paced steps, so that they need not add up. None where threads issue in an order
    in which the main one's calls cannot be told, and where calls ran on a stream of a device: the log does not tell
    how long that stream stood."""
    steps = (recorded_step(log, step) for step in schedule.steps)
    found = [parts for step in steps if step is not None and (parts := _parts(step, schedule)) is not None]
    if not found:
        return None
    return RankParts(
        computed_ns=round(median(parts.computed_ns for parts in found)),
        shown_ns=round(median(parts.shown_ns for parts in found)),
        waited_ns=round(median(parts.waited_ns for parts in found)),
    )


def runs_on_stream(log: RankLog, schedule: Schedule) -> bool:
    """Whether calls of a paced step were waits on a device: what the device did meanwhile is not in the log, so that
    an iteration in the log is not to be compared with a simulated one."""
    groups, steps = streamed_groups(log), frozenset(schedule.steps)
    return bool(groups) and any(
        call.group in groups and call.moment.step in steps and is_on_stream(call) for call in log.collectives
    )


def _parts(step: RecordedStep, schedule: Schedule) -> RankParts | None:
    main = [node for node in step.graph.nodes if node.thread == 0]
    rows = _rows_of(main, schedule)
    if rows is None or any(node.on_stream for node in step.graph.nodes):
        return None
    shown_ns = waited_ns = 0
    clock_ns = step.from_ns
    for since_ns, done_ns, transfer_ns in sorted(_stands(main, rows)):
        begun_ns = max(clock_ns, since_ns)
        end_ns = min(done_ns, step.until_ns)
        stood_ns = max(end_ns - begun_ns, 0)
        shown_ns += min(stood_ns, transfer_ns)
        waited_ns += max(stood_ns - transfer_ns, 0)
        clock_ns = max(begun_ns, end_ns)
    taken_ns = step.until_ns - step.from_ns
    return RankParts(computed_ns=taken_ns - shown_ns - waited_ns, shown_ns=shown_ns, waited_ns=waited_ns)


def _stands(nodes: Sequence[Node], rows: Sequence[Row]) -> Iterator[tuple[int, int, int]]:
    """Since when the thread stood for a call, until when at most, and how long its transfer takes."""
    for node, row in zip(nodes, rows, strict=True):
        since_ns = node.waited_ns if node.is_async or node.is_p2p else node.issued_ns
        if since_ns is not None and node.completed_ns is not None:
            yield since_ns, node.completed_ns, row.transfer_ns


def _rows_of(nodes: Sequence[Node], schedule: Schedule) -> list[Row] | None:
    """Of the stream whose calls these are: the main one, unless another thread came first in this step."""
    by_issuer: dict[int, list[Row]] = {MAIN: []}
    for row in schedule.rows:
        if row.is_call:
            by_issuer.setdefault(row.issuer, []).append(row)
    sizes = [max(node.sent_bytes, node.received_bytes) for node in nodes]
    return next((rows for rows in by_issuer.values() if [row.size_bytes for row in rows] == sizes), None)
