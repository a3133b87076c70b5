"""What the screen of a recorded job says: header, findings, a rank's row."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from rich.text import Text

from prismdbg.diagnosis.lateness.time_parts import Floats
from prismdbg.diagnosis.verdict import Verdict, without_folders
from prismdbg.jobs.run_overview import RankRow, RunOverview, WaitedFor
from prismdbg.model.moment import Moment
from prismdbg_tui.drawing import figures
from prismdbg_tui.drawing.finding_signs import SIGNS
from prismdbg_tui.drawing.wrapping import wrapped

_INSTALLED = re.compile(r'File "[^"]*/(?:site|dist)-packages/')
_FOLDERS = re.compile(r'File "[^"]*/(?=[^/"]+", line)')
_BLOCKS = " ▁▂▃▄▅▆▇█"
_INDENT, _HANG = "      ", "    "  # of what belongs to a finding; of a finding's second and later lines
_LEAST_DETAILS = 2  # lines of the chosen finding, even if others are not seen then
_WIDE = 110  # columns
_WHY_UNKNOWN = "on a device, asynchronous, or not ended in all logs"
_STRIPS = (6, 16)  # of a rank that was waited for; where it is wide


DROPPED_FIRST = (1, 2, 3, 0)  # of `heading`, where there is little room: what somebody chose is seen longest


def heading(job: RunOverview, at: Moment | None = None, order: str = "") -> tuple[str, ...]:
    """`at`: where ranks open. order: of the rows, if it was changed."""
    ranks = figures.plural(len(job.ranks), "rank")
    calls = figures.plural(sum(row.collectives for row in job.ranks), "collective")
    state = "running" if job.is_running else "ended" if job.is_running is False else "end unknown"
    newest = "newest " if job.begins_later else ""
    opens = (f"opens ranks at {at}",) if at is not None else ()
    return (ranks, calls, f"{newest}{figures.duration(job.lasted_ns)}", state, *opens, *([order] if order else []))


@dataclass(frozen=True, slots=True)
class Findings:
    """`is_whole`: the chosen one is seen with all its lines; no traceback is folded, and files have their folders."""

    text: Text
    is_whole: bool


def findings(job: RunOverview, chosen: int, colors: dict[str, str], room: int, width: int) -> Findings:
    """The chosen one with what belongs to it. Where all together have more lines than there is `room` for, a long
    traceback is folded, then the others have one line each, then the chosen one lacks its last lines."""
    verdicts = job.diagnosis.verdicts
    if not verdicts:
        text = Text("\n".join(wrapped(figures.clean(job.diagnosis.summary), width)), no_wrap=True, overflow="ellipsis")
        return Findings(text, is_whole=True)
    every, folded = (_details(lines, width) for lines in (verdicts[chosen].lines, verdicts[chosen].folded_lines))
    for details, whole in ((every, True), (folded, True), (folded, False)):
        blocks = _headings(verdicts, chosen, colors, width, whole=whole)
        if (left := room - sum(map(len, blocks))) >= len(details):
            break
    else:
        details = _cut(details, max(left, _LEAST_DETAILS))
    start, end = sum(map(len, blocks[:chosen])), sum(map(len, blocks[: chosen + 1])) + len(details)
    blocks[chosen] += details
    lines = [line for block in blocks for line in block]
    first = _first_line(start, end, len(lines), room)
    shown = lines[first : first + room]
    is_cut = len(lines) - first > room
    if is_cut:
        shown[-1:] = [Text(f"  … {len(lines) - first - room + 1} more lines: prismdbg why", "dim")]
    has_folders = any(_FOLDERS.search(_brief(line)) for line in verdicts[chosen].lines)
    is_whole = details == every and not has_folders and not (is_cut and end > first + room - 1)
    return Findings(Text("\n", no_wrap=True, overflow="ellipsis").join(shown), is_whole=is_whole)


def whole_finding(verdict: Verdict, colors: dict[str, str], width: int) -> Text:
    """With all that belongs to it."""
    heading = _finding(verdict, colors, width, is_chosen=True, whole=True)
    return Text("\n").join([*heading, *_lines(map(_brief, verdict.lines), width)])


def _first_line(start: int, end: int, lines: int, room: int) -> int:
    """So that the chosen one, from `start` to `end`, is to be seen."""
    return min(start, max(end - room, 0), max(lines - room, 0)) if end > room else 0


def _headings(
    verdicts: Sequence[Verdict], chosen: int, colors: dict[str, str], width: int, *, whole: bool
) -> list[list[Text]]:
    return [
        _finding(verdict, colors, width, is_chosen=number == chosen, whole=whole or number == chosen)
        for number, verdict in enumerate(verdicts)
    ]


def _details(lines: Sequence[str], width: int) -> list[Text]:
    return _lines((_INDENT + _FOLDERS.sub('File "', _brief(line)) for line in lines), width)


def _lines(lines: Iterable[str], width: int) -> list[Text]:
    return [Text(piece, "dim") for line in lines for piece in wrapped(line, width)]


def _cut(details: list[Text], room: int) -> list[Text]:
    if len(details) <= room:
        return details
    return [*details[: room - 1], Text(f"{_INDENT}… {figures.plural(len(details) - room + 1, 'line')}", "dim")]


def _finding(verdict: Verdict, colors: dict[str, str], width: int, *, is_chosen: bool, whole: bool) -> list[Text]:
    sign, color = SIGNS[verdict.certainty]
    lead = f"{sign} {verdict.certainty} "
    text = lead + _brief(verdict.text)
    pieces = wrapped(text, width - len(_HANG)) if whole else [figures.cut_words(text, width - len(_HANG))]
    lines = [Text((_HANG if at else "▸ " if is_chosen else "  ") + piece) for at, piece in enumerate(pieces)]
    for line in lines:
        line.stylize("bold" if is_chosen else "")
    lines[0].stylize(f"bold {colors[color]}", 2, 2 + len(lead))
    return lines


def _brief(text: str) -> str:
    return _INSTALLED.sub('File "', without_folders(figures.clean(text))).replace("\n", " ")


def cells(row: RankRow, sensors: Sequence[str], marked: str, *, partly: bool = False) -> list[Text]:
    """`marked`: the colour of a rank that a finding is about; empty for others. `partly`: of another tool's files,
    which do not say how long a rank waited in calls of which a finding can know who came last."""
    partly = partly and row.unknown_waits > 0
    failed = row.state in ("failed", "died")
    return [
        Text(str(row.rank), f"bold {marked}" if marked else "bold", justify="right"),
        Text(figures.clean(row.state), f"bold {marked}" if failed and marked else ""),
        Text(row.moment, justify="right"),
        Text(figures.clean(row.last)),
        Text(figures.clean(row.at)),
        Text(_time(row.waited_ns, partly=partly), justify="right"),
        Text(_time(row.awaited_ns, partly=partly), justify="right"),
        Text(figures.size(row.peak_bytes) if row.peak_bytes else "-", justify="right"),
        *(Text(f"{row.sensors[name]:.0%}" if name in row.sensors else "-", justify="right") for name in sensors),
    ]


def _time(lasted_ns: int, *, partly: bool) -> str:
    """`partly`: of only some of its collectives."""
    return f"{'≥ ' * partly}{figures.duration(lasted_ns)}" if lasted_ns else "?" if partly else "-"


def waits(row: RankRow, job: RunOverview, width: int) -> Text:
    """The ranks that this one waited for, and when: as many as there is room for."""
    text = Text(f" rank {row.rank} ", "bold", no_wrap=True, overflow="ellipsis")
    if not row.waited_for:
        tried = without_waits(row, job)
        return text.append(figures.first_fitting(tried, width - text.cell_len), "dim")
    text.append("waited for", "dim")
    first, *others = [_wait(wait, _STRIPS[width >= _WIDE]) for wait in row.waited_for]
    whole, plain, *shorter = _unknown(row)
    text.append_text(first)
    for other in others:
        if text.cell_len + other.cell_len + 2 > width - len(plain):
            break
        text.append(" ·", "dim").append_text(other)
    return text.append(figures.first_fitting((whole, plain, *shorter), width - text.cell_len), "dim")


def _unknown(row: RankRow) -> tuple[str, ...]:
    """In how many collectives a wait is not known: with the reason, then ever shorter."""
    if not row.unknown_waits:
        return "", ""
    plain = f" · waits unknown in {figures.plural(row.unknown_waits, 'collective')}"
    return f"{plain}: {_WHY_UNKNOWN}", plain, f" · {figures.count(row.unknown_waits)} unknown", ""


def without_waits(row: RankRow, job: RunOverview) -> tuple[str, ...]:
    """The whole sentence, then a shorter one."""
    if not job.clocks_agree:
        return ("waits are unknown: the ranks' clocks may differ",)
    if not row.known_waits:
        return (f"waits are unknown: {_WHY_UNKNOWN}", "waits are unknown")
    if not row.unknown_waits:
        return ("no wait for another rank in collectives that completed",)
    known = figures.plural(row.known_waits, "collective")
    short = f"no wait for another rank in {known}; unknown in {figures.count(row.unknown_waits)}"
    return f"{short} {_WHY_UNKNOWN}", short


def _wait(wait: WaitedFor, strip: int) -> Text:
    took, when = figures.duration(wait.waited_ns), strip_of(wait.when, strip)
    return Text.assemble((f" rank {wait.rank} ", "bold"), took, (f" {when} ", "dim"), f"at {wait.longest}")


def strip_of(inside: Floats, width: int) -> str:
    """One character for an equal part of the time; a part with anything in it is never blank."""
    if width < 1:
        return ""
    edges = np.linspace(0, len(inside), width + 1).astype(int)
    means = [float(inside[a : max(b, a + 1)].mean()) for a, b in pairwise(edges)]
    return "".join(_BLOCKS[0 if mean <= 0 else max(1, round(mean * 8))] for mean in means)
