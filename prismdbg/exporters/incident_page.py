"""One page for a ticket: verdicts, timeline, stacks, memory, versions, and how to replay. It loads nothing.

All texts of the program go through `_Words`: secrets and characters that nobody can see are taken out, and the rest is
escaped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from shlex import quote

import prismdbg
from prismdbg.capsule.secrets.masking import (
    redact_text,
)
from prismdbg.capsule.stacks import RankStacks
from prismdbg.diagnosis.stack_positions import stack_position
from prismdbg.diagnosis.why import diagnose
from prismdbg.exporters.about import About
from prismdbg.exporters.page_style import STYLE
from prismdbg.exporters.source import Source
from prismdbg.jobs.capture.secret_rules import find
from prismdbg.log.rank_log import columns_of
from prismdbg.log.timeline_svg import LEGEND, MOST_CALLS, timeline_svg
from prismdbg.memory.curve import curve
from prismdbg.memory.grouping import By, grouped
from prismdbg.memory.peak import peak
from prismdbg.memory.trace import MemoryTrace
from prismdbg.model.frame import Frame
from prismdbg.model.meanwhile import one_by_one
from prismdbg.model.plurals import counted
from prismdbg.model.sizes import size
from prismdbg.render.console import plain, when
from prismdbg.render.memory_svg import memory_svg
from prismdbg.simulate.report.page.markup import Markup, joined, table, tag

MOST_VERDICTS, MOST_LINES, MOST_RANKS, MOST_THREADS, MOST_GROUPS = 20, 60, 32, 8, 10
_POLICY = "default-src 'none'; style-src 'unsafe-inline'"  # nothing runs and nothing is fetched, whatever is in it


class _Words:
    """Texts of the recorded program, made fit for the page."""

    def __init__(self, known: tuple[str, ...]) -> None:
        self._known = known
        self._made: dict[str, str] = {}

    def __call__(self, text: str) -> str:
        if text not in self._made:
            self._made[text] = redact_text(plain(text.expandtabs(4)), self._known, find)
        return self._made[text]


def incident_page(path: Path, source: Source, known: About, now_ns: int) -> str:
    """As a text of HTML. `now_ns`: when it is written, since 1970."""
    words = _Words(known.known)
    title = words(path.resolve().name)
    sections: tuple[Callable[[], Iterator[Markup]], ...] = (
        lambda: _verdicts(source, words),
        lambda: _facts(known, words),
        lambda: _timeline(source, words),
        lambda: _ranks(source, words),
        lambda: _stacks(source, words),
        lambda: _memory(source, words),
        lambda: _replay(path, source, known, words),
    )
    body = tag(
        "body",
        tag("h1", title),
        tag("p", f"written {when(now_ns)} by prismdbg {prismdbg.__version__}", class_="soft"),
        *(part for section in one_by_one(sections, "writing the sections of the page") for part in section()),
    )
    head = tag(
        "head",
        Markup(f'<meta charset="utf-8"><meta http-equiv="Content-Security-Policy" content="{_POLICY}">'),
        Markup('<meta name="viewport" content="width=device-width">'),
        tag("title", f"{title}: incident"),
        tag("style", Markup(STYLE)),
    )
    return f"<!doctype html>\n{tag('html', head, body, lang='en')}\n"


def _verdicts(source: Source, words: _Words) -> Iterator[Markup]:
    found = diagnose(source.evidence)
    yield tag("h2", "Diagnosis")
    if not found.verdicts:
        yield tag("p", words(found.summary))
    for verdict in found.verdicts[:MOST_VERDICTS]:
        heading = joined(
            tag("b", str(verdict.certainty), class_=f"mark {verdict.certainty}"), f" {words(verdict.text)}"
        )
        lines = verdict.lines
        more = [f"and {len(lines) - MOST_LINES} lines more"] if len(lines) > MOST_LINES else []
        below = [tag("pre", words("\n".join([*lines[:MOST_LINES], *more])))] if lines else []
        yield tag("section", tag("h3", heading), *below, class_="verdict")
    if more_verdicts := len(found.verdicts[MOST_VERDICTS:]):
        yield tag("p", f"and {counted(more_verdicts, 'finding')} more: see `prismdbg why`", class_="soft")
    if missing := [*found.missing, *source.damaged]:
        yield tag("ul", *(tag("li", words(line)) for line in missing[:MOST_LINES]), class_="soft")


def _facts(known: About, words: _Words) -> Iterator[Markup]:
    rows = [*known.facts, *(("problem", text) for text in known.problems[:MOST_VERDICTS])]
    if rows:
        yield tag("h2", "Job")
        yield tag("dl", *(joined(tag("dt", name), tag("dd", words(value))) for name, value in rows))


def _timeline(source: Source, words: _Words) -> Iterator[Markup]:
    drawn = timeline_svg(source.evidence.logs, most_ranks=MOST_RANKS, words=words)
    if not drawn:
        return
    yield tag("h2", "Timeline")
    yield tag("p", f"The last {MOST_CALLS} collectives of each rank. Point at one to see its moment and line.")
    if source.evidence.emulated or not source.evidence.clocks_agree:
        yield tag("p", "The clocks of the ranks do not agree: compare times within one rank only.")
    marks = (joined(tag("i", class_=f"legend c{at}"), f" {name} ") for at, (_, name) in enumerate(LEGEND))
    yield tag("p", *marks, class_="soft")
    yield tag("div", Markup(drawn), class_="wide")


def _ranks(source: Source, words: _Words) -> Iterator[Markup]:
    rows = []
    for rank, log in sorted(source.evidence.logs.items())[:MOST_RANKS]:
        columns = columns_of(log)
        last = log.collectives[-1] if log.collectives else None
        rows.append(
            [
                str(rank),
                str(columns.last_moment),
                f"{columns.issued:,}",
                "" if last is None else words(f"{last.name}, {last.state}"),
                "" if last is None else words(last.place),
            ]
        )
    yield tag("h2", "Ranks")
    yield table(
        ("rank", "moment", "collectives", "last collective", "called from"), rows, right=("rank", "collectives")
    )
    if (more := len(source.evidence.logs) - MOST_RANKS) > 0:
        yield tag("p", f"and {counted(more, 'rank')} more", class_="soft")


def _stacks(source: Source, words: _Words) -> Iterator[Markup]:
    taken = source.evidence.stacks
    if not taken:
        return
    yield tag("h2", "Stacks")
    at = source.evidence.stacks_wall_ns
    yield tag("p", f"Taken {when(at)}." if at else "", class_="soft")
    for rank, found in sorted(taken.items())[:MOST_RANKS]:
        where = words(stack_position(found) or found.problem or "it ran no Python")
        yield tag("details", tag("summary", f"rank {rank}: {where}"), *_threads(found, words))


def _threads(found: RankStacks, words: _Words) -> Iterator[Markup]:
    for thread in found.threads[:MOST_THREADS]:
        held = ", holds the GIL" if thread.holds_gil else ""
        yield tag("p", f"{words(thread.name)}{held}")
        yield tag("pre", words(_frames(thread.frames) or "no Python frames"))


def _frames(frames: Sequence[Frame]) -> str:
    return "\n".join(str(frame) for frame in frames)


def _memory(source: Source, words: _Words) -> Iterator[Markup]:
    if source.memory:
        yield tag("h2", "Memory")
    for rank, trace in sorted(source.memory.items())[:MOST_RANKS]:
        yield from _memory_of(rank, trace, words)


def _memory_of(rank: int, trace: MemoryTrace, words: _Words) -> Iterator[Markup]:
    highest = peak(trace)
    if highest is None:
        return
    least = "at least " if highest.is_least else ""
    where = f" on {trace.device_name}" if trace.is_of_several else ""
    yield tag("h3", f"rank {rank}: {least}{size(highest.size_bytes)}{where} at {highest.moment}")
    yield tag("div", Markup(memory_svg(curve(trace, 300))), class_="wide")
    rows = [
        [size(entry.size_bytes), str(entry.blocks), words(entry.label)]
        for entry in grouped(highest.live, By.STACK)[:MOST_GROUPS]
    ]
    yield table(("size", "blocks", "allocated at"), rows, right=("size", "blocks"))


def _replay(path: Path, source: Source, known: About, words: _Words) -> Iterator[Markup]:
    yield tag("h2", "How to replay")
    if not known.capsules:
        yield tag("p", "This run has no capsule, so no rank of it can be replayed.")
        yield tag("pre", f"prismdbg why {words(quote(str(path)))}")
        return
    if source.manifest is None:
        yield tag("pre", f"prismdbg why {words(quote(str(path)))}")
    for capsule in known.capsules[:MOST_VERDICTS]:
        typed = words(quote(str(capsule)))
        yield tag(
            "pre",
            f"prismdbg replay {typed}    # runs the rank without the others and compares every collective\n"
            f"prismdbg debug {typed}     # steps through it",
        )
    yield tag("p", "A capsule contains data of the rank. Before you attach one, see what it contains:")
    yield tag("pre", f"prismdbg inspect {words(quote(str(known.capsules[0])))} --secrets")
