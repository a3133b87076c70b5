"""A sweep as a page: a table, and time against memory."""

from __future__ import annotations

from collections.abc import Sequence

from prismdbg.model.durations import four_digits
from prismdbg.model.sizes import size
from prismdbg.render import sweep_text
from prismdbg.simulate.report.page.heat_map import palette
from prismdbg.simulate.report.page.markup import Markup, table, tag
from prismdbg.simulate.report.page.style import STYLE
from prismdbg.sweep.result import Result, State, pareto

_WIDTH, _HEIGHT, _EDGE = 720, 320, 48
_CHARACTER = 6.5  # the width of one, at most: the style's letters are 11 high

_Box = tuple[float, float, float, float]  # left, top, right, bottom


def page(results: Sequence[Result], cap_bytes: int) -> str:
    body = tag(
        "body",
        tag("h1", "Configurations compared"),
        *(tag("p", line) for line in sweep_text.conclusion(results, cap_bytes)),
        table(sweep_text.HEADER, sweep_text.rows(results, cap_bytes), right=sweep_text.NUMBERS),
        *(tag("p", line) for line in sweep_text.energy(results)),
        tag("h2", "Fidelity"),
        tag("ul", *(tag("li", line) for line in _worth(results, cap_bytes))),
        *_time_against_memory(results, cap_bytes),
        *_computing(results),
    )
    head = tag(
        "head",
        Markup('<meta charset="utf-8"><meta name="viewport" content="width=device-width">'),
        Markup('<link rel="icon" href="data:,">'),  # else browsers ask the server for one
        tag("title", "Configurations compared"),
        tag("style", Markup(STYLE)),
    )
    return f"<!doctype html>\n{tag('html', head, body, lang='en')}\n"


def _worth(results: Sequence[Result], cap_bytes: int) -> list[str]:
    return [*sweep_text.worth(results, cap_bytes), *sweep_text.doubts(results, cap_bytes)]


def _time_against_memory(results: Sequence[Result], cap_bytes: int) -> list[Markup]:
    """Nothing where memory was not traced."""
    known = [each for each in results if each.state is State.DONE and each.peak_bytes is not None]
    if not known:
        return []
    most_ns = max(each.time.high for each in known)
    most_bytes = max(*(each.peak_bytes or 0 for each in known), cap_bytes, 1)
    best = {each.name for each in pareto(known)}

    def x(time_ns: int) -> float:
        return _EDGE + (_WIDTH - 2 * _EDGE) * time_ns / max(most_ns, 1)

    def y(peak_bytes: int) -> float:
        return _HEIGHT - _EDGE - (_HEIGHT - 2 * _EDGE) * peak_bytes / most_bytes

    marks: list[Markup] = []
    for each in known:
        at_y = y(each.peak_bytes or 0)
        title = f"{each.name}: {four_digits(each.time.middle)}, {size(each.peak_bytes or 0)}"
        fill = "currentColor" if each.name in best else "none"
        dot = tag("circle", tag("title", title), cx=x(each.time.middle), cy=at_y, r=5, fill=fill, stroke="currentColor")
        line = tag("line", x1=x(each.time.low), x2=x(each.time.high), y1=at_y, y2=at_y, stroke="currentColor")
        marks += [line, dot]
    marks += _labels([(each.name, x(each.time.middle), y(each.peak_bytes or 0)) for each in known if each.name in best])
    if cap_bytes:
        cap_y = y(cap_bytes)
        marks.append(tag("line", x1=_EDGE, x2=_WIDTH - _EDGE, y1=cap_y, y2=cap_y, stroke="#c33", stroke_dasharray="4"))
    axes = [
        tag("line", x1=_EDGE, x2=_WIDTH - _EDGE, y1=_HEIGHT - _EDGE, y2=_HEIGHT - _EDGE, stroke="currentColor"),
        tag("line", x1=_EDGE, x2=_EDGE, y1=_EDGE, y2=_HEIGHT - _EDGE, stroke="currentColor"),
        tag("text", f"iteration, up to {four_digits(most_ns)}", x=_EDGE, y=_HEIGHT - 12, fill="currentColor"),
        tag("text", f"peak memory, up to {size(most_bytes)}", x=_EDGE, y=20, fill="currentColor"),
    ]
    about = (
        "Filled: no other configuration is better in time and in memory. Lines are intervals, the dashed one the cap."
    )
    return [
        tag("h2", "Time against memory"),
        tag("p", about),
        tag("svg", *axes, *marks, viewBox=f"0 0 {_WIDTH} {_HEIGHT}", width=_WIDTH, height=_HEIGHT, role="img"),
    ]


def _computing(results: Sequence[Result]) -> list[Markup]:
    """A row a configuration, a cell a rank or a block of ranks: how much of an iteration it computes."""
    known = sorted((each for each in results if each.computed), key=lambda each: each.time.middle)
    if not known:
        return []
    width = max(len(each.computed) for each in known)
    rows = [
        tag(
            "tr",
            tag("td", each.name),
            *(_cell(share, number, width // len(each.computed)) for number, share in enumerate(each.computed)),
        )
        for each in known
    ]
    about = "The share of an iteration in which a rank, or a block of consecutive ranks, computes. The rest is waiting "
    return [
        tag("h2", "Computing, by rank and configuration"),
        tag("p", about + "and communication that nothing hides. Dark is 0 %, bright 100 %."),
        tag("table", *rows, class_="computing"),
    ]


def _cell(share: float, number: int, columns: int) -> Markup:
    red, green, blue = palette()[round(255 * min(max(share, 0.0), 1.0))]
    style = f"background:rgb({red},{green},{blue});min-width:8px"
    return tag("td", title=f"{number}: {share:.1%}", colspan=max(columns, 1), style=style)


def _labels(points: Sequence[tuple[str, float, float]]) -> list[Markup]:
    """Beside, above or below their marks; one that has no room is left to the mark's title."""
    boxes = [(x - 6, y - 6, x + 6, y + 6) for _, x, y in points]
    labels = []
    for name, x, y in points:
        width = _CHARACTER * len(name)
        places = ((x + 8, y + 4), (x - 8 - width, y + 4), (x - width / 2, y - 10), (x - width / 2, y + 18))
        for left, base in places:
            box = (left, base - 9, left + width, base + 3)
            if left >= 0 and box[2] <= _WIDTH and not any(_meet(box, other) for other in boxes):
                boxes.append(box)
                labels.append(tag("text", name, x=round(left, 1), y=round(base, 1), fill="currentColor"))
                break
    return labels


def _meet(one: _Box, other: _Box) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]
