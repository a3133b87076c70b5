"""The pipeline by stage as SVG: a row a class of ranks, a box a stretch of computation, gaps where there is none."""

from __future__ import annotations

from collections.abc import Sequence

from prismdbg.model.durations import four_digits
from prismdbg.simulate.report.page.markup import Markup, joined, tag
from prismdbg.simulate.report.report import Span, StageRow

MOST_ROWS = 64
LABELS, WIDTH, FIGURES = 190, 1000, 150  # of the columns, in units of the picture
ROW, BOX, TOP, BOTTOM = 20, 14, 6, 26
NARROW = 0.4  # boxes of one kind that lie closer become one
KINDS = {"F": "forward", "B": "backward", "W": "weights"}
_TICKS = 5


def pipeline(rows: Sequence[StageRow], iteration_ns: int) -> Markup:
    shown = rows[:MOST_ROWS]
    height = TOP + ROW * len(shown) + BOTTOM
    parts = [_row(row, number, iteration_ns) for number, row in enumerate(shown)]
    drawing = tag(
        "svg",
        *parts,
        _scale(iteration_ns, TOP + ROW * len(shown)),
        viewBox=f"0 0 {LABELS + WIDTH + FIGURES} {height}",
        role="img",
        aria_label="the computations of each stage over time",
    )
    more = [tag("p", f"{len(rows) - MOST_ROWS} more classes are not drawn.")] if len(rows) > MOST_ROWS else []
    return joined(_legend(shown), tag("div", drawing, class_="wide"), *more)


def _row(row: StageRow, number: int, iteration_ns: int) -> Markup:
    top = TOP + ROW * number
    middle = top + BOX - 3
    ranks = f"rank {row.rank:,}" if row.ranks == 1 else f"rank {row.rank:,} and {row.ranks - 1:,} more"
    title = (
        f"{row.name}: {ranks}; computes {row.computed:.1%}, exposed communication {row.shown:.1%}, idle {row.idle:.1%}"
    )
    figures = f"{row.computed:.0%} · {row.shown:.0%} · {row.idle:.0%}"
    return tag(
        "g",
        tag("title", title),
        tag("text", row.name, x=LABELS - 10, y=middle, text_anchor="end"),
        tag("rect", x=LABELS, y=top, width=WIDTH, height=BOX, class_="idle"),
        *(_box(span, top, iteration_ns) for span in _merged(row.spans, iteration_ns)),
        tag("text", figures, x=LABELS + WIDTH + 10, y=middle, class_="figures"),
    )


def _box(span: Span, top: int, iteration_ns: int) -> Markup:
    x, width = _place(span, iteration_ns)
    title = f"{span.label}: {four_digits(span.start_ns)} to {four_digits(span.end_ns)}"
    odd = span.label[1:].isdecimal() and int(span.label[1:]) % 2
    return tag(
        "rect",
        tag("title", title),
        x=f"{LABELS + x:.2f}",
        y=top,
        width=f"{max(width, 0.15):.2f}",
        height=BOX,
        class_=kind_of(span.label) + (" odd" if odd else ""),
    )


def _merged(spans: Sequence[Span], iteration_ns: int) -> list[Span]:
    """Boxes too narrow to be told apart become one, labelled by the first and the last."""
    found: list[Span] = []
    for span in spans:
        x, width = _place(span, iteration_ns)
        if found and width < NARROW and kind_of(found[-1].label) == kind_of(span.label):
            before, long = _place(found[-1], iteration_ns)
            if x - before - long < NARROW and long < 2 * NARROW:
                first = found.pop()
                label = first.label.partition(" to ")[0]
                found.append(Span(label=f"{label} to {span.label}", start_ns=first.start_ns, end_ns=span.end_ns))
                continue
        found.append(span)
    return found


def _place(span: Span, iteration_ns: int) -> tuple[float, float]:
    """Where it begins and how long it is."""
    scale = WIDTH / max(iteration_ns, 1)
    return span.start_ns * scale, (span.end_ns - span.start_ns) * scale


def kind_of(label: str) -> str:
    """By the letter before a microbatch's number; all else is other."""
    is_numbered = label[1:].partition(" ")[0].isdecimal()
    return KINDS.get(label[:1], "other") if is_numbered else "other"


def _legend(rows: Sequence[StageRow]) -> Markup:
    kinds = dict.fromkeys(kind_of(span.label) for row in rows for span in row.spans)
    marks = [joined(tag("i", class_=f"mark {kind}"), f" {kind} ") for kind in kinds]
    odd = "; odd microbatches in another shade" if kinds.keys() & set(KINDS.values()) else ""
    said = f"{odd}. Right: the share of the iteration that a stage computes, communicates exposed, or is idle."
    return tag("p", *marks, tag("i", class_="mark idle"), " nothing computed", said, class_="legend")


def _scale(iteration_ns: int, top: int) -> Markup:
    parts = []
    for tick in range(_TICKS + 1):
        x = LABELS + WIDTH * tick / _TICKS
        anchor = {0: "start", _TICKS: "end"}.get(tick, "middle")
        text = four_digits(iteration_ns * tick // _TICKS) if tick else "0"
        parts.append(tag("line", x1=x, x2=x, y1=top, y2=top + 5, class_="tick"))
        parts.append(tag("text", text, x=x, y=top + 18, text_anchor=anchor, class_="figures"))
    return tag("g", *parts)
