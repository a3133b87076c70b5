"""Rows of a report as plain text: the pipeline by stage, waits by axis, stragglers, the critical path."""

from __future__ import annotations

from collections.abc import Sequence

from prismdbg.predict.report import AxisRow, PathRow, StageRow, StragglerRow

IDLE = "·"


def pipeline(rows: Sequence[StageRow], iteration_ns: int, width: int = 80) -> list[str]:
    """A line a stage. Each column shows what filled most of it: the label's letter, or idle."""
    name_width = max((len(row.name) for row in rows), default=0)
    lines = [f"{row.name:<{name_width}} {_bar(row, iteration_ns, width)} {row.computed:4.0%}" for row in rows]
    scale = f"{'':<{name_width}} 0{duration(iteration_ns):>{max(width - 1, 1)}}"
    return [*lines, scale]


def _bar(row: StageRow, iteration_ns: int, width: int) -> str:
    """Upper case for even numbers of the label, lower for odd, so that microbatches can be told apart."""
    filled: list[dict[str, int]] = [{} for _ in range(width)]
    for span in row.spans:
        mark = _mark(span.label)
        first, last = span.start_ns * width // iteration_ns, max(span.end_ns - 1, 0) * width // iteration_ns
        for column in range(first, min(last, width - 1) + 1):
            begins = max(span.start_ns, column * iteration_ns // width)
            ends = min(span.end_ns, (column + 1) * iteration_ns // width)
            filled[column][mark] = filled[column].get(mark, 0) + max(ends - begins, 0)
    return "".join(_most(column, iteration_ns // width) for column in filled)


def _most(column: dict[str, int], width_ns: int) -> str:
    if not column or 2 * sum(column.values()) < width_ns:
        return IDLE
    return max(column, key=lambda mark: column[mark])


def _mark(label: str) -> str:
    letter, number = label[:1] or "?", label[1:]
    return letter.lower() if number.isdecimal() and int(number) % 2 else letter.upper()


def waits(rows: Sequence[AxisRow]) -> list[str]:
    header = f"{'channel':<14} {'waiting':>10} {'longest':>10} {'of rank':>8} {'shown':>10} {'hidden':>10}"
    return [header] + [
        f"{row.channel:<14} {duration(row.late_ns):>10} {duration(row.most_late_ns):>10} {row.most_late_rank:>8} "
        f"{duration(row.shown_ns):>10} {duration(row.hidden_ns):>10}"
        for row in rows
    ]


def slowest(rows: Sequence[StragglerRow]) -> list[str]:
    header = f"{'rank':>7} {'where':<24} {'class':<12} {'computes':>10} {'beyond':>10} {'waits':>10}"
    return [header] + [
        f"{row.rank:>7} {row.coordinates:<24} {row.class_name:<12} {duration(row.computed_ns):>10} "
        f"{'+' + duration(row.excess_ns):>10} {duration(row.waited_ns):>10}"
        for row in rows
    ]


def path(rows: Sequence[PathRow], iteration_ns: int) -> list[str]:
    header = f"{'share':>6} {'taken':>10} {'times':>6} {'rank':>7} what"
    return [header] + [
        f"{row.taken_ns / max(iteration_ns, 1):>6.1%} {duration(row.taken_ns):>10} {row.times:>6} {row.rank:>7} "
        f"{row.name}{' on ' + row.channel if row.channel else ''}"
        for row in rows
    ]


def duration(taken_ns: int) -> str:
    """Four digits with a unit that fits."""
    for unit, size_ns in (("s", 10**9), ("ms", 10**6), ("us", 10**3)):
        if taken_ns >= size_ns:
            return f"{taken_ns / size_ns:.4g} {unit}"
    return f"{taken_ns} ns"
