"""The page: what an iteration takes and what that is worth first, then pipeline, map, waits, stragglers, path."""

from __future__ import annotations

from collections.abc import Sequence

from prismdbg.model.durations import four_digits
from prismdbg.model.plurals import counted
from prismdbg.simulate.assessment.fidelity import Fidelity
from prismdbg.simulate.engine.critical_path import Part
from prismdbg.simulate.engine.timeline import Timeline
from prismdbg.simulate.graph.entries import PROVENANCES
from prismdbg.simulate.report import report
from prismdbg.simulate.report.page.heat_map import heat_map
from prismdbg.simulate.report.page.markup import Markup, bar, joined, table, tag
from prismdbg.simulate.report.page.pipeline import pipeline
from prismdbg.simulate.report.page.style import SCRIPT, STYLE

MOST_PATH_ROWS = 25


def page(timeline: Timeline, path: Sequence[Part]) -> str:
    """`path`: the critical one. The timeline must have kept its first ranks."""
    mesh = timeline.graph.mesh
    title = f"{counted(mesh.world, 'rank')}, {mesh}"
    body = tag(
        "body",
        tag("h1", title),
        _cards(timeline),
        _worth(timeline.fidelity),
        tag("h2", "Pipeline by stage"),
        pipeline(report.stages(timeline), timeline.iteration_ns),
        tag("h2", "Ranks by mesh coordinates"),
        heat_map(timeline),
        tag("h2", "Waits by axis"),
        _waits(timeline),
        *_stragglers(timeline),
        tag("h2", "Critical path"),
        _path(timeline, path),
        tag("script", Markup(SCRIPT)),
    )
    head = tag(
        "head",
        Markup('<meta charset="utf-8"><meta name="viewport" content="width=device-width">'),
        Markup('<link rel="icon" href="data:,">'),  # else browsers ask the server for one
        tag("title", title),
        tag("style", Markup(STYLE)),
    )
    return f"<!doctype html>\n{tag('html', head, body, lang='en')}\n"


def _cards(timeline: Timeline) -> Markup:
    whole = max(timeline.iteration_ns * len(timeline.computed_ns), 1)
    cards = (
        (four_digits(timeline.iteration_ns), "an iteration"),
        (f"{float(timeline.computed_ns.sum()) / whole:.1%}", "of the ranks' time computing"),
        (f"{float(timeline.exposed_ns.sum()) / whole:.1%}", "exposed communication"),
        (f"{timeline.bubble_share:.1%}", "idle"),
    )
    return tag("div", *(tag("div", tag("b", figure), tag("span", what)) for figure, what in cards), class_="cards")


def _worth(fidelity: Fidelity) -> Markup:
    """Bars for time and bytes, then the lines everybody else prints, too."""
    said = [line for line in fidelity.lines() if not line.startswith(" ")]
    return tag(
        "section",
        tag("h2", "Fidelity"),
        _stack(fidelity, "time"),
        _stack(fidelity, "bytes"),
        tag("p", *(joined(tag("i", class_=f"mark {p}"), f" {p} ") for p in PROVENANCES), class_="legend"),
        tag("ul", *(tag("li", line) for line in said)),
    )


def _stack(fidelity: Fidelity, what: str) -> Markup:
    share = fidelity.time_share if what == "time" else fidelity.bytes_share
    parts = (
        tag("span", class_=str(p), style=f"width:{share(p) * 100:.3f}%", title=f"{share(p):.1%} of the {what}: {p}")
        for p in PROVENANCES
        if share(p)
    )
    return tag("div", tag("b", what), tag("div", *parts, class_="stack"), class_="stacked")


def _waits(timeline: Timeline) -> Markup:
    rows = [
        (
            row.channel,
            four_digits(row.late_ns),
            four_digits(row.most_late_ns),
            f"{row.most_late_rank:,}",
            four_digits(row.shown_ns),
            four_digits(row.hidden_ns),
        )
        for row in report.by_axis(timeline)
    ]
    header = ("channel", "waiting", "longest", "of rank", "exposed communication", "hidden communication")
    return joined(
        table(header, rows, right=header[1:]),
        tag(
            "p",
            "The mean of the ranks; longest: of one rank. Exposed: communication that no computation hides.",
            class_="soft",
        ),
    )


def _stragglers(timeline: Timeline) -> list[Markup]:
    rows = [
        (
            f"{row.rank:,}",
            row.coordinates,
            row.class_name,
            four_digits(row.computed_ns),
            f"+{four_digits(row.excess_ns)}",
            four_digits(row.waited_ns),
        )
        for row in report.stragglers(timeline)
    ]
    header = ("rank", "where", "class", "computes", "beyond the median", "waits")
    right = ("rank", "computes", "beyond the median", "waits")
    return [tag("h2", "Stragglers"), table(header, rows, right=right)] if rows else []


def _path(timeline: Timeline, path: Sequence[Part]) -> Markup:
    rows = report.path_rows(path)
    iteration_ns = max(timeline.iteration_ns, 1)
    largest = max((row.taken_ns for row in rows), default=1)
    shown = [
        (
            f"{row.taken_ns / iteration_ns:.1%}",
            bar(row.taken_ns / largest, "path"),
            four_digits(row.taken_ns),
            f"{row.times:,}",
            timeline.graph.mesh.say(row.rank),
            f"{row.name}{' on ' + row.channel if row.channel else ''}",
        )
        for row in rows[:MOST_PATH_ROWS]
    ]
    rest_ns = sum(row.taken_ns for row in rows[MOST_PATH_ROWS:])
    left = f"{len(rows) - MOST_PATH_ROWS} more, together {four_digits(rest_ns)}."
    more = [tag("p", left, class_="soft")] if rest_ns else []
    header = ("share", "", "taken", "times", "rank", "what")
    return joined(table(header, shown, right=("share", "taken", "times")), *more)
