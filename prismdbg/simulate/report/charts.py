"""Rows of a report as plain text: the pipeline by stage, waits by axis, stragglers, the critical path."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from prismdbg.model.durations import four_digits
from prismdbg.model.sizes import size
from prismdbg.simulate.report.report import AxisRow, PathRow, StageRow, StragglerRow

IDLE = "·"
FILLED = 0.95  # of a column by one thing
MOST_STAGES = 64
BESIDE = len("  computes exposed  idle")
MEMORY_WIDTH = len("  123.4 MiB")


def pipeline(rows: Sequence[StageRow], iteration_ns: int, columns: int = 100) -> list[str]:
    """A line a stage, so wide if there is any room. A column of the chart shows what fills it; where it holds several
    things, neighbours show them in proportion. At the end of it the most memory that the class had, where it is known.
    """
    shown = rows[:MOST_STAGES]
    name_width = max((len(row.name) for row in shown), default=0)
    knows_memory = any(row.peak_bytes for row in shown)
    width = max(columns - name_width - BESIDE - (MEMORY_WIDTH if knows_memory else 0), 20)
    is_fine = _is_fine(shown, iteration_ns, width)
    lines = [
        f"{row.name:<{name_width}} {_bar(row, iteration_ns, width, is_fine=is_fine)} "
        f"{row.computed:>8.0%} {row.shown:>7.0%} {row.idle:>5.0%}"
        + (f"{size(row.peak_bytes):>{MEMORY_WIDTH}}" if knows_memory else "")
        for row in shown
    ]
    scale = f"{'':<{name_width}} 0{four_digits(iteration_ns):>{max(width - 1, 1)}} computes exposed  idle"
    scale += f"{'memory':>{MEMORY_WIDTH}}" if knows_memory else ""
    odd = ", lower case where it is odd" if is_fine else ", several of them in a column"
    more = [f"{len(rows) - MOST_STAGES} more classes of ranks"] if len(rows) > MOST_STAGES else []
    legend = f"letters: the first letter of the computation{odd}; {IDLE}: nothing"
    return [*lines, scale, *more, legend]


def _is_fine(rows: Sequence[StageRow], iteration_ns: int, width: int) -> bool:
    """Whether one microbatch can be told from the next: most spans fill a column."""
    taken = sorted(span.end_ns - span.start_ns for row in rows for span in row.spans)
    return bool(taken) and taken[len(taken) // 2] * width >= iteration_ns


def _bar(row: StageRow, iteration_ns: int, width: int, *, is_fine: bool) -> str:
    """What a column could not show goes to the next ones, until one is filled by one thing."""
    filled: list[dict[str, int]] = [{} for _ in range(width)]
    for span in row.spans:
        mark = _mark(span.label) if is_fine else _mark(span.label).upper()
        first, last = span.start_ns * width // iteration_ns, max(span.end_ns - 1, 0) * width // iteration_ns
        for column in range(first, min(last, width - 1) + 1):
            begins = max(span.start_ns, column * iteration_ns // width)
            ends = min(span.end_ns, (column + 1) * iteration_ns // width)
            filled[column][mark] = filled[column].get(mark, 0) + max(ends - begins, 0)
    owed: dict[str, int] = {}
    marks = []
    for held in filled:
        marks.append(_next(held, owed, max(iteration_ns // width, 1)))
    return "".join(marks)


def _next(held: Mapping[str, int], owed: dict[str, int], width_ns: int) -> str:
    """The mark that has most to be shown."""
    whole = {**held, IDLE: max(width_ns - sum(held.values()), 0)}
    only = next((mark for mark, taken_ns in whole.items() if taken_ns >= FILLED * width_ns), None)
    if only is not None:
        owed.clear()
        return only
    for mark, taken_ns in whole.items():
        owed[mark] = owed.get(mark, 0) + taken_ns
    chosen = max(owed, key=lambda mark: owed[mark])
    owed[chosen] -= width_ns
    return chosen


def _mark(label: str) -> str:
    """Upper case for even numbers of the label, lower for odd, so that microbatches can be told apart."""
    letter, number = label[:1] or "?", label[1:]
    return letter.lower() if number.isdecimal() and int(number) % 2 else letter.upper()


def waits(rows: Sequence[AxisRow]) -> list[str]:
    header = f"{'channel':<14} {'waiting':>10} {'longest':>10} {'of rank':>8} {'exposed':>10} {'hidden':>10}"
    return [header] + [
        f"{row.channel:<14} {four_digits(row.late_ns):>10} {four_digits(row.most_late_ns):>10} {row.most_late_rank:>8} "
        f"{four_digits(row.shown_ns):>10} {four_digits(row.hidden_ns):>10}"
        for row in rows
    ]


def compared_waits(before: Sequence[AxisRow], after: Sequence[AxisRow]) -> list[str]:
    """One row a channel of either, in the order of `after`."""
    old, new = ({row.channel: row for row in rows} for rows in (before, after))
    lines = [f"{'channel':<14}" + "".join(f" {name:>10} {'becomes':>10}" for name in ("waiting", "exposed", "hidden"))]
    for channel in dict.fromkeys([*new, *old]):
        was, becomes = old.get(channel), new.get(channel)
        cells = [f" {_cell(was, name):>10} {_cell(becomes, name):>10}" for name in ("late_ns", "shown_ns", "hidden_ns")]
        lines.append(f"{channel:<14}{''.join(cells)}")
    return lines


def _cell(row: AxisRow | None, name: str) -> str:
    return "-" if row is None else four_digits(getattr(row, name))


def slowest(rows: Sequence[StragglerRow]) -> list[str]:
    header = f"{'rank':>7} {'where':<24} {'class':<12} {'computes':>10} {'beyond':>10} {'waits':>10}"
    return [header] + [
        f"{row.rank:>7} {row.coordinates:<24} {row.class_name:<12} {four_digits(row.computed_ns):>10} "
        f"{'+' + four_digits(row.excess_ns):>10} {four_digits(row.waited_ns):>10}"
        for row in rows
    ]


def path(rows: Sequence[PathRow], iteration_ns: int) -> list[str]:
    header = f"{'share':>6} {'taken':>10} {'times':>6} {'rank':>7} what"
    return [header] + [
        f"{row.taken_ns / max(iteration_ns, 1):>6.1%} {four_digits(row.taken_ns):>10} {row.times:>6} {row.rank:>7} "
        f"{row.name}{' on ' + row.channel if row.channel else ''}"
        for row in rows
    ]
