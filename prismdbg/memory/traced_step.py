"""One step of a trace, cut at its collectives: what was computed between two of them, what memory did, where it waited.

Times are of the clock that the trace was made by; which share of a stretch each operator took is what they are for.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from prismdbg.capsule.memory_format import Kind
from prismdbg.memory.peak import stretch
from prismdbg.memory.trace import MemoryTrace, Site
from prismdbg.model.moment import Moment

BETWEEN = "program"  # what runs between two operators
_BACKWARD = "autograd::engine::evaluate_function: "
FREED = "freed"


@dataclass(frozen=True, slots=True)
class Ran:
    """An operator, or what lay between two; `line` is the program's own, empty where nobody knows it."""

    taken_ns: int
    label: str
    line: str = ""


@dataclass(frozen=True, slots=True)
class Changed:
    """What the program's own memory grew by; below zero where it shrank."""

    size_bytes: int
    label: str = ""


@dataclass(frozen=True, slots=True)
class Waited:
    """A thread waited for the work of this collective. How long is not told: it depends on the peers."""

    record_id: int


Item = Ran | Changed | Waited


@dataclass(frozen=True, slots=True, kw_only=True)
class Border:
    """Of a collective, on the trace's clock: when it was issued, and when its thread went on."""

    issued_ns: int
    goes_on_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TracedStep:
    """`after`: by the number of the collective in its step, 0 for the step's begin. held_bytes: at the begin.

    is_whole: the trace goes back to the program's start; of what is older only what Python reaches is known.

    device: whose memory it is; empty where the trace has only that of the CPU.
    """

    step: int
    held_bytes: int
    is_whole: bool
    device: str = ""
    after: Mapping[int, tuple[Item, ...]]

    @property
    def operators(self) -> int:
        return sum(isinstance(i, Ran) and i.label != BETWEEN for items in self.after.values() for i in items)


def traced_step(
    trace: MemoryTrace, step: int, known: Mapping[int, Border] | None = None, until_ns: int | None = None
) -> TracedStep | None:
    """None where nothing of the step was traced.

    known: borders by collective, 0 for the step's begin, for a trace that does not tell them; until_ns: so the end.
    """
    first, beyond = stretch(trace, Moment(step), Moment(step + 1))
    if first >= beyond:
        return None
    borders = {**(known or {}), **_borders(trace, step)}
    last_ns = _step_begin(trace, step + 1)
    if last_ns is None:
        last_ns = until_ns if until_ns is not None else int(trace.time_ns[beyond - 1])
    numbers = np.maximum.accumulate(np.where(trace.step[first:beyond] == step, trace.collective[first:beyond], 0))
    cuts = np.flatnonzero(np.diff(numbers, prepend=-1)) + first
    rows = {
        int(numbers[cut - first]): range(cut, end)
        for cut, end in zip(cuts.tolist(), [*cuts[1:].tolist(), beyond], strict=True)
    }
    ends = _operator_ends(trace, first, beyond)
    after: dict[int, tuple[Item, ...]] = {}
    running: _Running | None = None
    order = sorted({0, *borders, *rows})
    for number, following in zip(order, [*order[1:], None], strict=True):
        own = rows.get(number, range(0))
        begin_ns = borders[number].goes_on_ns if number in borders else _first_ns(trace, own, last_ns)
        end_ns = last_ns
        if following is not None:
            end_ns = (
                borders[following].issued_ns if following in borders else _first_ns(trace, rows[following], last_ns)
            )
        cutting = _Cutting(trace, begin_ns, max(end_ns, begin_ns), running)
        after[number] = tuple(cutting.items(own, ends, first))
        running = cutting.running
    return TracedStep(
        step=step,
        held_bytes=int(trace.total_bytes[first]),
        is_whole=trace.is_whole,
        device=trace.device_name if trace.is_of_several else "",
        after=after,
    )


def _borders(trace: MemoryTrace, step: int) -> dict[int, Border]:
    """The last that was told of each."""
    found = np.flatnonzero((trace.kind == Kind.ANSWERED) & (trace.step == step))
    issued: dict[int, int] = {}
    borders: dict[int, Border] = {}
    for row in found.tolist():
        number, goes_on_ns = int(trace.collective[row]), int(trace.time_ns[row])
        first_ns = issued.setdefault(number, int(trace.address[row]) or goes_on_ns)
        borders[number] = Border(issued_ns=first_ns, goes_on_ns=goes_on_ns)
    return borders


def _step_begin(trace: MemoryTrace, step: int) -> int | None:
    found = np.flatnonzero((trace.kind == Kind.ANSWERED) & (trace.step == step) & (trace.collective == 0))
    return int(trace.address[found[0]]) or int(trace.time_ns[found[0]]) if len(found) else None


def _first_ns(trace: MemoryTrace, rows: range, otherwise_ns: int) -> int:
    return int(trace.time_ns[rows[0]]) if len(rows) else otherwise_ns


def _operator_ends(trace: MemoryTrace, first: int, beyond: int) -> dict[int, int]:
    """Of each operator's row when it had ended: the next one of its thread tells, or else begins by then."""
    ends: dict[int, int] = {}
    last: dict[int, int] = {}
    for row in (np.flatnonzero(trace.kind[first:] == Kind.OPERATOR) + first).tolist():
        thread, begin_ns = int(trace.thread[row]), int(trace.time_ns[row])
        before = last.get(thread)
        if before is not None:
            told_ns = int(trace.address[row])
            ends[before] = told_ns if int(trace.time_ns[before]) <= told_ns <= begin_ns else begin_ns
        if row >= beyond and before is not None and before >= beyond:
            break
        last[thread] = row
    return ends


@dataclass(slots=True)
class _Running:
    """An operator that may still run when the next collective is issued."""

    label: str
    line: str
    until_ns: int | None


@dataclass(slots=True)
class _Cutting:
    """One stretch, from `at_ns` to `end_ns`. `running`: the operator that is under way, at first of the one before."""

    trace: MemoryTrace
    at_ns: int
    end_ns: int
    running: _Running | None
    _waits: list[tuple[int, int, int]] = field(default_factory=list)  # began, ended, record

    def items(self, rows: range, ends: Mapping[int, int], first: int) -> Iterator[Item]:
        trace = self.trace
        kinds = trace.kind[rows.start : rows.stop]
        for row in (np.flatnonzero(kinds == Kind.WAITED) + rows.start).tolist():
            self._waits.append((int(trace.address[row]), int(trace.time_ns[row]), int(trace.block[row])))
        self._waits.sort(reverse=True)
        moved = np.diff(trace.total_bytes[rows.start : rows.stop], prepend=_before(trace, rows, first))
        for row in (np.flatnonzero((kinds == Kind.OPERATOR) | (moved != 0)) + rows.start).tolist():
            if trace.kind[row] == Kind.OPERATOR:
                begin_ns = int(trace.time_ns[row])
                yield from self._finish(begin_ns)
                yield from self._advance(begin_ns, BETWEEN, "")
                site = trace.site_at(int(trace.site[row]))
                self.running = _Running(site.outer_op.removeprefix(_BACKWARD), _line(site), ends.get(row))
            if change := int(moved[row - rows.start]):
                yield Changed(change, _memory_label(trace, row, change))
        yield from self._finish(self.end_ns)
        yield from self._advance(self.end_ns, BETWEEN, "")
        yield from (Waited(record_id) for *_, record_id in reversed(self._waits))

    def _finish(self, latest_ns: int) -> Iterator[Item]:
        """The operator that runs, as far as `latest_ns`."""
        if self.running is None:
            return
        until_ns = self.running.until_ns
        yield from self._advance(
            latest_ns if until_ns is None else min(until_ns, latest_ns), self.running.label, self.running.line
        )
        if until_ns is None or until_ns <= latest_ns:
            self.running = None

    def _advance(self, to_ns: int, label: str, line: str) -> Iterator[Item]:
        """Less what it waited meanwhile."""
        to_ns = min(to_ns, self.end_ns)
        while self._waits and self._waits[-1][0] < to_ns:
            began_ns, ended_ns, record_id = self._waits.pop()
            if began_ns > self.at_ns:
                yield Ran(began_ns - self.at_ns, label, line)
            yield Waited(record_id)
            self.at_ns = max(self.at_ns, began_ns, ended_ns)
        if to_ns > self.at_ns:
            yield Ran(to_ns - self.at_ns, label, line)
            self.at_ns = to_ns


def _before(trace: MemoryTrace, rows: range, first: int) -> int:
    """What was held before the first of these rows; what the step begins with is no change."""
    if not len(rows):
        return 0
    return int(trace.total_bytes[rows.start - 1 if rows.start > first else first])


def _memory_label(trace: MemoryTrace, row: int, change: int) -> str:
    return trace.site_at(int(trace.site[row])).op if change > 0 else FREED


def _line(site: Site) -> str:
    return str(site.own_frame or "")
